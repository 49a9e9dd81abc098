"""The process in which logs are compacted: `python -m odradek.server.background.cleaner_process`, started by
a broker.

It takes the lowest priority first: imports alone take 0.1 s of processor time, and there may be only one
core.
"""

import os

LOWEST_PRIORITY = 19


def main() -> None:
    os.nice(LOWEST_PRIORITY)
    from odradek.server.background.cleaner_rounds import serve  # not before

    serve()


if __name__ == "__main__":
    main()
