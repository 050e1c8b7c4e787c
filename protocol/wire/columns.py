"""Columns of a batch as bytes: numbers of a fixed width, and flags of one bit each.

The `check_*` functions read untrusted bytes and refuse them with a code. They run for every
message, so they make as few calls as possible.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import Refused
from confide.protocol.wire import wire_pb2 as wire

Array = NDArray[Any]

U2, F4, I8 = np.dtype("<u2"), np.dtype("<f4"), np.dtype("<i8")


def column(data: bytes, dtype: np.dtype[Any], count: int) -> Array:
    """Read a column that must hold exactly `count` numbers."""
    if len(data) != count * dtype.itemsize:
        raise Refused(wire.Code.MALFORMED)
    return np.frombuffer(data, dtype=dtype)


def check_numbers(data: bytes, n: int, *, below: int) -> None:
    """Check that a column holds n 16-bit numbers, all below a limit."""
    numbers = column(data, U2, n)
    # The same as `max`, without its overhead in Python.
    if n and np.maximum.reduce(numbers) >= below:
        raise Refused(wire.Code.OUT_OF_ALPHABET)


def pack_flags(flags: Array) -> bytes:
    """Pack eight flags per byte, the first in the lowest bit."""
    return np.packbits(flags.reshape(-1), bitorder="little").tobytes()


def unpack_flags(data: bytes, count: int) -> NDArray[np.bool_]:
    """Unpack the first `count` flags of a column that has been checked."""
    packed = np.frombuffer(data, dtype=np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little").view(np.bool_)


def check_flags(data: bytes, count: int) -> None:
    """Check that a column has the length of `count` flags and that all bits beyond them are off."""
    if len(data) != -(-count // 8) or (count % 8 and data[-1] >> count % 8):
        raise Refused(wire.Code.MALFORMED)


def rows(data: bytes, count: int, width: int) -> Array:
    """Read `count` rows of `width` float32 numbers."""
    return column(data, F4, count * width).reshape(count, width)


def cut(data: bytes, *, bits: int, first: int, last: int) -> bytes:
    """Cut the given rows out of a packed column.

    `first` is a multiple of 8, so cuts fall between bytes.
    """
    return data[first * bits // 8 : -(-last * bits // 8)]
