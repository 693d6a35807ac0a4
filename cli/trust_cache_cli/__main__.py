"""Start the program `trust-cache`, also as `python -m trust_cache_cli`, and end its process at once.

Worker processes import this module again, so it imports nothing that they do not need.
"""

import atexit
import gc
import logging
import os
import sys


def run() -> None:
    """Run the command line, then end the process without freeing its memory.

    The interpreter would free every object and unload torch and OpenVINO first: half a second and more.
    """
    # Imports make hundreds of thousands of objects that stay; by default the collector walks them often.
    gc.set_threshold(100_000)
    code: object = None
    try:
        from trust_cache_cli.main import main

        main()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:  # before there is a command that says what is kept
        code = 130
    atexit._run_exitfuncs()  # what Python itself runs at the end: temporary folders, open pools
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # whoever read it has gone, or it is closed
            code = code or 1
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    run()
