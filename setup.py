"""The one choice that pyproject.toml cannot express: with ODRADEK_PURE=1 in the environment the compiled
parts are left out, and the wheel is `py3-none-any`. Everything else is said in pyproject.toml.
"""

import os

from setuptools import Distribution, setup


class PureDistribution(Distribution):
    """The same packages without the extension modules that pyproject.toml lists."""

    def parse_config_files(self, *arguments, **options):
        super().parse_config_files(*arguments, **options)
        self.ext_modules = []


setup(distclass=PureDistribution if os.environ.get("ODRADEK_PURE") == "1" else Distribution)
