"""`python -m odradek` is the console script."""

import sys

from odradek.commands.main import main

sys.exit(main())
