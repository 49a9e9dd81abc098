"""How the compiled parts are built, on all processors; everything else is said in pyproject.toml.

ODRADEK_BUILD_CACHE names a folder in which parts are kept by what they are made of: `tools/environment.py`
has one for all checkouts.
"""

import hashlib
import os
import pathlib
import shutil
import sysconfig
import tempfile

import Cython
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, ExecError

NO_COMPILER = (
    "Odradek is built from its sources here, for which it needs a C compiler that works and the headers of "
    "Python (Debian: apt-get install gcc libc6-dev python3-dev)."
)


class BuildParts(build_ext):
    def build_extensions(self) -> None:
        folder = os.environ.get("ODRADEK_BUILD_CACHE")
        kept = {extension.name: _kept(folder, extension) for extension in self.extensions if folder}
        missing = [one for one in self.extensions if not (folder and kept[one.name].exists())]
        if missing:
            self._check_compiler()
            self._compile(missing)
        for extension in self.extensions:
            made = pathlib.Path(self.get_ext_fullpath(extension.name))
            if folder and extension in missing:
                _copy(made, kept[extension.name])
            elif folder:
                _copy(kept[extension.name], made)

    def _check_compiler(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "tried.c")
            source.write_text("#include <Python.h>\n")
            try:
                self.compiler.compile([str(source)], output_dir="/", include_dirs=self.include_dirs)
            except (CompileError, ExecError):
                raise SystemExit(NO_COMPILER) from None

    def _compile(self, extensions: list[Extension]) -> None:
        """Cython in processes, then the C compiler under threads that wait for it."""
        self.parallel = os.cpu_count() or 1
        translated = cythonize(extensions, include_path=["."], nthreads=self.parallel, quiet=True)
        for extension, in_c in zip(extensions, translated, strict=True):
            extension.sources = in_c.sources
            if self.compiler.compiler_type == "unix":
                # Python's own flags have -g, which takes time and room.
                extension.extra_compile_args = ["-g0"]
        every, self.extensions = self.extensions, extensions
        super().build_extensions()
        self.extensions = every


def _kept(folder: str, extension: Extension) -> pathlib.Path:
    """Where the part is kept that is made of these sources in this way."""
    compiler = [os.environ.get(name) for name in ("CC", "CFLAGS", "LDSHARED", "LDFLAGS")]
    digest = hashlib.sha256(repr((sysconfig.get_platform(), Cython.__version__, compiler)).encode())
    digest.update(repr((extension.define_macros, extension.py_limited_api)).encode())
    for name in sorted([*extension.sources, *extension.depends]):
        digest.update(name.encode() + pathlib.Path(name).read_bytes())
    return pathlib.Path(folder, f"{extension.name}-{digest.hexdigest()[:16]}.so")


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    """Whole or not at all: others may read there, or write the same."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as copy:
        copy.write(source.read_bytes())
    shutil.copymode(source, copy.name)
    os.replace(copy.name, target)


if __name__ == "__main__":  # not in the processes of Cython
    setup(cmdclass={"build_ext": BuildParts})
