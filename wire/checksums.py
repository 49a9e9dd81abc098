"""CRC-32C (`crc32c(buffer) -> int`), without what importing its package costs.

The `crc32c` package reads its own distribution's metadata and loads `argparse` when it is imported: 28 ms of
the 150 that a broker may take until its first answer. The function itself is in an extension module beside
that, which is loaded here by itself; where it is not in the usual place, the package is imported after all.
"""

from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, PathFinder
from importlib.util import module_from_spec

__all__ = ["crc32c"]

Buffer = bytes | bytearray | memoryview


def _load() -> Callable[[Buffer], int]:
    package = PathFinder.find_spec("crc32c")
    for folder in (package and package.submodule_search_locations) or ():
        extension = FileFinder(folder, (ExtensionFileLoader, EXTENSION_SUFFIXES)).find_spec("_crc32c")
        if extension is not None and extension.loader is not None:
            module = module_from_spec(extension)
            extension.loader.exec_module(module)
            loaded: Callable[[Buffer], int] = module.crc32c
            return loaded
    from crc32c import crc32c as from_package

    return from_package


crc32c = _load()
