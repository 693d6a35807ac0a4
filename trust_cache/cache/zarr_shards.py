"""Write and read the index of a Zarr shard (sharding_indexed).

zarr-python handles the same bytes, but much slower than the disk, and never syncs them.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trust_cache.cache.layout import Layout

CRC_BYTES = 4
ENTRY_BYTES = 16  # offset and length, both unsigned 64 bit
ABSENT = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, bits reversed


def codecs_of(layout: Layout) -> list[dict[str, Any]]:
    """Return the codecs of `features` as its metadata lists them: one uncompressed chunk per image."""
    plain = {"name": "bytes", "configuration": {"endian": "little"}}
    configuration = {
        "chunk_shape": [1, layout.views, layout.dim],
        "codecs": [plain],
        "index_codecs": [plain, {"name": "crc32c"}],
        "index_location": "end",
    }
    return [{"name": "sharding_indexed", "configuration": configuration}]


def index_bytes(layout: Layout) -> int:
    """Return the length of a shard's index, which is at the end of the file."""
    return ENTRY_BYTES * layout.shard_images + CRC_BYTES


@lru_cache(maxsize=64)
def ordered_index(layout: Layout, images: int) -> bytes:
    """Return the index of a shard whose images follow each other from the start of the file."""
    entries = np.full((layout.shard_images, 2), ABSENT, dtype="<u8")
    entries[:images, 0] = np.arange(images) * layout.image_bytes
    entries[:images, 1] = layout.image_bytes
    content = entries.tobytes()
    return content + crc32c(content).to_bytes(CRC_BYTES, "little")


def read_index(layout: Layout, images: int, index: bytes) -> NDArray[np.int64] | None:
    """Return the offsets of a shard's images, -1 for an absent one, or None for a damaged index."""
    if index == ordered_index(layout, images):
        return np.arange(images, dtype=np.int64) * layout.image_bytes
    content, check = index[:-CRC_BYTES], index[-CRC_BYTES:]
    if crc32c(content) != int.from_bytes(check, "little"):
        return None
    entries = np.frombuffer(content, dtype="<u8").reshape(-1, 2)[:images]
    absent = entries[:, 0] == ABSENT
    if np.any(~absent & (entries[:, 1] != layout.image_bytes)):
        return None
    return np.where(absent, np.int64(-1), entries[:, 0].astype(np.int64))


def crc32c(content: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of a few hundred bytes."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
