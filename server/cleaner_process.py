"""The process in which logs are compacted: `python -m odradek.server.cleaner_process`, started by a broker.

It takes the lowest priority before anything else: to load what it needs is a tenth of a second of a processor
already, and there may be but one.
"""

import os

LOWEST_PRIORITY = 19


def main() -> None:
    os.nice(LOWEST_PRIORITY)
    from odradek.server.cleaner_rounds import serve  # not before

    serve()


if __name__ == "__main__":
    main()
