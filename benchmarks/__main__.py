"""Run every benchmark, or those named: `python -m benchmarks certificate`."""

import sys
from importlib import import_module

ALL = ("certificate", "heads", "memory", "images")


def main() -> int:
    """Run the benchmarks and return 1 where a target was missed."""
    chosen = sys.argv[1:] or ALL
    unknown = [name for name in chosen if name not in ALL]
    if unknown:
        print(f"unknown benchmark {', '.join(unknown)}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    missed = [name for name in chosen if not import_module(f"benchmarks.{name}").run()]
    if missed:
        print(f"targets missed in: {', '.join(missed)}", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
