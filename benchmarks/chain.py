"""The price of the content chain: extract and fit-heads with its digests, and with digests that cost nothing.

The two alternate in one process, and processor time is compared: other load on the machine affects both.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import torch

from benchmarks.cohort import scratch, simulated
from benchmarks.extraction import FAST_DIM, FastEncoder, extract_once, write_images
from trust_cache.cache.extract.picture_source import PngSource
from trust_cache.cache.extract.view_features import Runner
from trust_cache.cache.views import ViewPlan
from trust_cache.encoders.known_encoders import load_encoder
from trust_cache.heads.fit import fit_heads

AT_MOST = 1.03
ROUNDS = 5
IMAGES, VIEWS = 8, 8
SMALL = (304, 182)  # B5 at a fifth of its size: a slower encoder makes digests cheaper still
SMALL_IMAGES, SMALL_VIEWS = 4, 2


class NoDigest:
    """A digest that reads nothing; not zeros, which mean that a shard has no mark."""

    def __init__(self, _content: object = b"") -> None: ...

    def update(self, _content: object) -> None:
        """Take bytes without reading them."""

    def digest(self) -> bytes:
        """Return 32 bytes."""
        return b"\1" * 32

    def hexdigest(self) -> str:
        """Return them as text."""
        return self.digest().hex()


def run() -> bool:
    """Print the ratios with their spread; return whether each is within the limit."""
    torch.set_num_threads(1)  # threads that wait for each other count as processor time
    with tempfile.TemporaryDirectory() as name, torch.inference_mode():
        folder = Path(name)
        files = write_images(folder, IMAGES)
        good = _compare(
            "extract, 1 ms a view, the encoder's time not counted",
            lambda: extract_once(
                folder,
                files,
                ViewPlan(VIEWS, seed=0),
                Runner(FastEncoder(), "cpu"),
                FAST_DIM,
                batch=16,
                source=PngSource(2),
            ),
        )
        small = load_encoder("random", SMALL)
        plan = ViewPlan(SMALL_VIEWS, seed=0)
        good &= _compare(
            f"extract, B5 at {SMALL[0]}x{SMALL[1]}",
            lambda: extract_once(
                folder,
                files[:SMALL_IMAGES],
                plan,
                Runner(small, "cpu"),
                small.dim,
                batch=4,
                source=PngSource(2),
            ),
        )
    cache = simulated("nlbs")
    out = scratch() / "chain-run"
    good &= _compare(
        f"fit-heads, {cache.images:,} images, {cache.views} views, the paper's five over 20 epochs",
        lambda: fit_heads(cache.source, out, overwrite=True),
        rounds=3,
    )
    return good


def _compare(what: str, work: Callable[[], object], rounds: int = ROUNDS) -> bool:
    work()  # the first call pays for memory, caches and compilation
    with_digests, without = [], []
    for number in range(rounds):
        for place in (0, 1):  # each goes first in turn
            digests = bool((number + place) % 2)
            (with_digests if digests else without).append(_seconds(work, digests=digests))
    # The least of each is closest to an idle machine; the spread of the pairs is that of the machine.
    ratio = min(with_digests) / min(without)
    pairs = sorted(one / other for one, other in zip(with_digests, without, strict=True))
    print(f"chain: {what}: {ratio:.3f} times the processor time without digests (least of {rounds} each,"
          f" {min(without):.1f} s; pairs {pairs[0]:.3f} to {pairs[-1]:.3f}; at most {AT_MOST})")  # fmt: skip
    return ratio <= AT_MOST


def _seconds(work: Callable[[], object], *, digests: bool) -> float:
    with ExitStack() as stack:
        if not digests:
            stack.enter_context(without_digests())
        start = time.process_time()
        work()
        return time.process_time() - start


@contextmanager
def without_digests() -> Iterator[None]:
    """Replace the digests of pictures, shards and the files of a run by ones that cost nothing."""
    with (
        patch("trust_cache.cache.extract.shard_work.blake3", NoDigest),
        patch("trust_cache.cache.layout.blake3", NoDigest),
        patch("trust_cache.cache.feature_rows.check_shard", lambda *_: None),
        patch("trust_cache.heads.run_folder.digests_of", lambda files: dict.fromkeys(files, "")),
        patch("trust_cache.heads.fold_training.bind_bytes", lambda content, *_: content),
        patch("trust_cache.heads.fold_training.unbind_bytes", lambda content, *_: content),
    ):
        yield
