"""Start the program `trust-cache`, also as `python -m trust_cache_cli`, and end its process at once.

Worker processes import this module again, so it imports nothing that they do not need.
"""

import atexit
import gc
import logging
import os
import sys
import threading

_FINISHED = (None, 0, 1)  # exit codes after which threads and open pools may end their work


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
    except KeyboardInterrupt:  # before a command has started
        code = 130
    if code in _FINISHED:  # else what still runs is of no use, such as an encoder that is being converted
        threading._shutdown()  # type: ignore[attr-defined]  # typeshed leaves it out
    atexit._run_exitfuncs()  # Python itself does both first, in this order
    logging.shutdown()
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None: closed before the start
        try:
            stream.flush()
        except (OSError, ValueError):  # its reader has gone, or it is closed
            code = code or 1
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    run()
