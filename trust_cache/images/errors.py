"""The one way in which an image fails: at a stage, for a reason that fits one row of a table."""

from typing import Literal

from trust_cache.base.errors import InputError

Stage = Literal["read", "decode", "intensity", "mask", "encode"]


class ImageError(InputError):
    """An image that gives no canonical picture; the reason is one sentence without header values."""

    def __init__(self, stage: Stage, reason: str) -> None:
        # Both go to `args`, so that the error survives the way back from a worker process.
        super().__init__(stage, reason)
        self.stage = stage
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.stage}: {self.reason}"
