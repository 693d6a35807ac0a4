"""Run every benchmark, or those named, each in its own process: `python -m benchmarks certificate`.

`python -m benchmarks extraction --device cuda` measures a GPU.
"""

import subprocess
import sys
from importlib import import_module

ALL = (
    "start", "commands", "growth", "certificate", "heads", "memory", "sweep", "images", "extraction",
    "runtimes", "chain", "cluster", "report", "monitoring", "reproduce", "dismissal",
)  # fmt: skip


def main() -> int:
    """Run the benchmarks and return 1 if a target was missed."""
    words, device = sys.argv[1:], []
    if "--device" in words:
        place = words.index("--device")
        device = words[place + 1 : place + 2]
        del words[place : place + 2]
        if words != ["extraction"] or not device:
            print("--device DEVICE is for the benchmark extraction alone", file=sys.stderr)
            return 2
    chosen = words or list(ALL)
    unknown = [name for name in chosen if name not in ALL]
    if unknown:
        print(f"unknown benchmark {', '.join(unknown)}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    if len(chosen) == 1:
        return int(not import_module(f"benchmarks.{chosen[0]}").run(*device))
    # The peak of memory is per process: one benchmark must not count in the next.
    codes = {
        name: subprocess.run([sys.executable, "-m", "benchmarks", name], check=False).returncode
        for name in chosen
    }
    missed = [name for name, code in codes.items() if code]
    if missed:
        print(f"targets missed in: {', '.join(missed)}", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
