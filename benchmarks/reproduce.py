"""The paper in one command on two synthetic caches of full size: where the time goes, and a resumed start.

Training is what a reproduction is for: everything else may take at most as long. A second start with
`resume` finds every step complete and only writes the tables, the figures and the page again.
"""

import shutil
import time

import trust_cache as tc
from benchmarks.cohort import scratch, simulated
from trust_cache.api.reproduce import Listener

AT_MOST_REST = 1.0  # times the training
AT_MOST_AGAIN = 0.1  # of the first start
_TRAINING = ("configurations, five folds", "heads trained on all")


def run() -> bool:
    """Print the seconds of each step; return whether the ratios are within their limits."""
    caches = {name: simulated(name) for name in ("rsna", "nlbs")}
    out = scratch() / "paper"
    shutil.rmtree(out, ignore_errors=True)
    tc.reproduce(**caches, out=out, epochs=1, repeats=1, resplits=1, resamples=200)  # compiles on first use
    steps: list[tuple[str, float]] = []
    begin = time.perf_counter()
    listen = Listener(step=lambda title: steps.append((title, time.perf_counter())))
    found = tc.reproduce(**caches, out=out, overwrite=True, listen=listen)
    end = time.perf_counter()
    tc.reproduce(**caches, out=out, resume=True)
    again = time.perf_counter() - end
    print(f"reproduce: {' and '.join(f'{cache.images:,} images' for cache in caches.values())}")
    ends = [when for _, when in steps[1:]] + [end]
    seconds = {title: last - first for (title, first), last in zip(steps, ends, strict=True)}
    for title, took in seconds.items():
        print(f"  {took:6.1f} s  {title.rpartition(': ')[0]}")
    training = sum(took for title, took in seconds.items() if any(word in title for word in _TRAINING))
    rest = (end - begin - training) / training
    print(f"  {end - begin:.0f} s in all, {training:.0f} s of it training; the rest is {rest:.2f} times"
          f" the training (at most {AT_MOST_REST})")  # fmt: skip
    share = again / (end - begin)
    print(f"  resumed when complete: {again:.1f} s, {share:.2f} of the first start (at most {AT_MOST_AGAIN})")
    print(f"  {len(found.reproduction.numbers)} published numbers beside ours")
    shutil.rmtree(out)
    return rest <= AT_MOST_REST and share <= AT_MOST_AGAIN


if __name__ == "__main__":
    raise SystemExit(not run())
