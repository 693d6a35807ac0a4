"""Read-only maps of files that keep no file open: thousands of shards stay under the limit of open files."""

import ctypes
import mmap
import os
import sys
import weakref
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


class MappedFile:
    """A file mapped into memory for as long as this object lives; its pages belong to the page cache."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        if self.size == 0:
            raise ValueError(f"{path}: an empty file cannot be mapped")
        with path.open("rb") as file:
            if sys.platform == "win32":
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self.address = np.frombuffer(self._map, dtype=np.uint8).ctypes.data
            else:
                self.address = _map_pages(file.fileno(), self.size)
                weakref.finalize(self, _unmap_pages, self.address, self.size)

    def array(self, offset: int, shape: tuple[int, ...]) -> NDArray[np.float16]:
        """Return float16 values at a byte offset without copying; valid only while this object lives."""
        count = int(np.prod(shape))
        if offset < 0 or offset + 2 * count > self.size:
            raise ValueError(f"{self.path}: {2 * count} bytes at {offset} are outside its {self.size} bytes")
        buffer = (ctypes.c_uint16 * count).from_address(self.address + offset)
        return np.frombuffer(memoryview(buffer), dtype=np.float16).reshape(shape)


if sys.platform != "win32":
    # Python's own mmap keeps a copy of the file's descriptor open for the life of the map (up to 3.12).
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_ssize_t,
    ]  # fmt: skip
    _libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    _FAILED = ctypes.c_void_p(-1).value

    def _map_pages(handle: int, size: int) -> int:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
        if address is None or address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return int(address)

    def _unmap_pages(address: int, size: int) -> None:
        _libc.munmap(address, size)
