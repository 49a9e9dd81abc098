"""Names of the markers, apart: the plugin is imported without what they need."""

from typing import Final

RESTORE: Final = "odradek_restore"
FAULTS: Final = "odradek_faults"
