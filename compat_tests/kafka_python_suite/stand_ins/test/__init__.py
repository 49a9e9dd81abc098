"""Makes `test` of kafka-python's source package importable: it lacks this file; Python has a `test` too."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
