"""What a read asks before it hands anything out, of the system and of headers: compiled where that was
built, else in plain Python; `COMPILED` says which.
"""

__all__ = ["COMPILED", "hop", "is_in_memory"]

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the twins are alike; the plain one says its types
    from odradek.storage._reading_python import hop, is_in_memory

    COMPILED: bool
else:
    try:
        from odradek.storage._reading import hop, is_in_memory

        COMPILED = True
    except ImportError:
        from odradek.storage._reading_python import hop, is_in_memory

        COMPILED = False
