"""Work: what a kernel call has to do at the least, whatever runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Work:
    """FLOPs (a multiply-add is two) and bytes of one call. None is not known, with the reason in `why_unknown`.

    `message_bytes` is the buffer each rank gives to a collective. `note` says what a number that is known rests on.
    """

    family: str
    flops: int | None = None
    unit: Literal["cube", "vector"] | None = None
    dtype: str | None = None  # of the arithmetic, as devices name it: bf16, fp16, fp32, int8, fp8
    bytes_read: int | None = None
    bytes_written: int | None = None
    message_bytes: int | None = None
    ranks: int | None = None
    why_unknown: str | None = None
    note: str | None = None
    # a floor only: bytes are known, what is done with them is not
    byte_bound: bool = False

    @property
    def bytes(self) -> int | None:
        """Read and written together."""
        if self.bytes_read is None or self.bytes_written is None:
            return None
        return self.bytes_read + self.bytes_written


class NotPriced(Exception):
    """Why a call has no price; caught by `work_of`, which makes it an unknown row."""
