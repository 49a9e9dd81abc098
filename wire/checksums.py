"""CRC-32C (`crc32c(buffer) -> int`), without the cost of importing its package.

The import of the `crc32c` package reads its distribution's metadata and loads `argparse`: 28 ms of the 150 ms
that a broker may take until its first response. The function is in an extension module of the package, which
is loaded here directly; if it is not in its usual place, the package is imported.
"""

from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, PathFinder
from importlib.util import module_from_spec

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
