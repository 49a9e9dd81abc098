"""`python -m odradek` is the console script."""

import sys

from odradek.server.cli import main

sys.exit(main())
