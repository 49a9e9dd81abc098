"""Lets the tests here import `memory_disk`: with importlib's import mode a test folder is on no path."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
