"""The file for spark-submit to run a job: `odradek spark JOB` on the session of spark-submit.

    spark-submit ... environment/lib/python3.11/site-packages/odradek/spark/__main__.py archive ...

`python -m odradek.spark JOB` does the same without spark-submit.
"""

import os
import sys

# Python puts the folder of the started file first: our modules would hide others of the same name.
sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))]

from odradek.spark.cli import main  # noqa: E402

sys.exit(main())
