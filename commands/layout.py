"""The form of help texts."""

import argparse
import os


class Layout(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal; argparse would import shutil, and all compressors with it, to learn
    that."""

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
        except (OSError, ValueError):
            columns = 80
        super().__init__(prog, width=max(columns, 20) - 2)
