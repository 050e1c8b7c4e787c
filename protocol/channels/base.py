"""The base of all channels: a law of integers, reports as bytes, and label channels.

Every channel holds the integers that its sampler compares with, and its law is the law of those
integers: `law(value)` gives exact `Fraction`s, and `epsilon` is the exact worst log-ratio of that
law (rounded up to a float, never above the requested epsilon, which is kept in `requested`).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput, check_epsilon
from confide.protocol.exact.exponentials import exp_below, log_up
from confide.protocol.exact.sampling import Entropy
from confide.protocol.wire.columns import check_flags, pack_flags, unpack_flags

Array = NDArray[Any]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
PairLaw = dict[tuple[bool, bool], tuple[Fraction, Fraction]]

MOST_LABELS = 1 << 15
CHUNK = 1 << 17
_ENUMERABLE = 1 << 16


@dataclass(frozen=True)
class Channel(ABC):
    """A local randomiser as one value, for drawing, packing and reading reports.

    Clients call `randomize` and `pack`; the aggregator calls `check`, `unpack` and `weights`.
    """

    epsilon: float
    requested: float = field(init=False)
    name: ClassVar[str]

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        for name, value in {"requested": self.epsilon, **self._integers()}.items():
            object.__setattr__(self, name, value)
        worst = max(max(p / q, q / p) for p, q in self.pair_law(0, 1).values())
        object.__setattr__(self, "epsilon", log_up(worst))

    @abstractmethod
    def _integers(self) -> dict[str, int]:
        """The integers closest to the requested epsilon on the private side."""

    @property
    @abstractmethod
    def hit(self) -> Fraction:
        """Probability that a report supports its own value."""

    @property
    @abstractmethod
    def spill(self) -> Fraction:
        """Probability that a report supports another given value."""

    @abstractmethod
    def randomize(self, values: Array, entropy: Entropy) -> Array:
        """Draw one report per value."""

    @abstractmethod
    def law(self, value: int) -> dict[Any, Fraction]:
        """The exact probability of every report.

        Channels whose reports are sets refuse beyond 2^16 reports; `pair_law` serves any k.
        """

    @property
    @abstractmethod
    def report_bits(self) -> int:
        """The number of bits of a packed report."""

    @abstractmethod
    def pack(self, reports: Array) -> bytes:
        """Pack reports into bytes, without gaps between them."""

    @abstractmethod
    def check(self, data: bytes, n: int) -> None:
        """Refuse, with a code, untrusted bytes that are not n packed reports of this channel."""

    @abstractmethod
    def unpack(self, data: bytes, n: int) -> Array:
        """Return the n reports in bytes that passed `check`."""

    @abstractmethod
    def pair_law(self, value: int, rival: int) -> PairLaw:
        """The law of (report supports value, report supports rival), under `value` and `rival`.

        Given these two flags, a report has the same conditional law under both values, so nothing
        else in it distinguishes them: the worst ratio of this law is the worst ratio of the
        channel, for any k.
        """

    def _unbiased(self, supported: Flags) -> Floats:
        scale = self.hit - self.spill
        return np.where(supported, float((1 - self.spill) / scale), float(-self.spill / scale))


@dataclass(frozen=True)
class LabelChannel(Channel):
    """A pure protocol over k labels (Wang et al. 2017, USENIX Security).

    A report supports some labels, and

    w(y) = (1{report supports y} - spill) / (hit - spill),     E[w(y)] = 1{own label is y}.
    """

    k: int = field(kw_only=True)
    # Whether a report is either its own label or one drawn uniformly from all k.
    uniform_noise: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 2 <= self.k <= MOST_LABELS:
            raise BadInput(f"k is {self.k!r}; a channel takes between 2 and {MOST_LABELS} labels")
        super().__post_init__()

    @abstractmethod
    def supports(self, reports: Array) -> Flags:
        """Return (n, k) flags: the labels that each report supports."""

    @abstractmethod
    def supported(self, reports: Array, scores: Array) -> Array:
        """Select, in one row, those of the (n, k) scores whose labels the reports support."""

    @abstractmethod
    def support_range(self, set_size: int) -> tuple[int, int]:
        """Return the least and the most labels of a set that a report can support."""

    @abstractmethod
    def variance(self, set_size: float) -> float:
        """Variance of X = sum of w(y) over a set of this size that holds the record's own label."""

    def weights(self, reports: Array) -> Floats:
        """Return (n, k) unbiased estimates of 1{own label is y}."""
        return self._unbiased(self.supports(reports))

    def check_labels(self, values: Array) -> Array:
        """Check that the values are one row of integers from 0 to k - 1."""
        values = np.asarray(values)
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise BadInput(
                f"labels have shape {values.shape} and type {values.dtype}; accepted is one row of "
                "integers"
            )
        if not values.dtype.isnative:
            values = values.astype(values.dtype.newbyteorder("="))
        # Viewed as unsigned, a negative label is at least half the range of its type, so one pass
        # usually finds labels that are too small or too large.
        one_pass = values.dtype.kind == "u" or self.k <= 1 << (8 * values.itemsize - 1)
        largest = values.view(f"u{values.itemsize}") if one_pass else values
        if values.size and (largest.max() >= self.k or not (one_pass or values.min() >= 0)):
            raise BadInput(
                f"labels run from {values.min()} to {values.max()}; accepted are 0 to {self.k - 1}"
            )
        return values


@dataclass(frozen=True)
class SetChannel(LabelChannel):
    """A label channel whose reports are rows of k flags."""

    @property
    def report_bits(self) -> int:
        return self.k

    def pack(self, reports: Array) -> bytes:
        return pack_flags(reports)

    def check(self, data: bytes, n: int) -> None:
        check_flags(data, n * self.k)

    def unpack(self, data: bytes, n: int) -> Array:
        return unpack_flags(data, n * self.k).reshape(n, self.k)

    def supports(self, reports: Array) -> Flags:
        reports = np.asarray(reports)
        if reports.ndim != 2 or reports.shape[1] != self.k:
            raise BadInput(
                f"reports have shape {reports.shape}; accepted is (n, {self.k}), a row of flags "
                "each"
            )
        return reports.astype(np.bool_, copy=False)

    def supported(self, reports: Array, scores: Array) -> Array:
        return np.asarray(scores[self.supports(reports)])

    def check_enumerable(self, reports: int) -> None:
        if reports > _ENUMERABLE:
            raise BadInput(
                f"the law has {reports} outcomes; at most {_ENUMERABLE} are listed, use pair_law "
                "for larger k"
            )


def close_enough(reached: float, asked: float) -> bool:
    """Whether integer weights reach an epsilon close enough to the requested one."""
    return asked - reached <= min(5e-4, asked / 100)


def two_levels(k: int, epsilon: float) -> dict[str, int]:
    """Return the word size and weights of randomised response.

    high / low <= e^epsilon and high + (k - 1) low <= 2^bits. The narrowest word that comes close is
    taken; `high` is rounded down, the private side.
    """
    bound = exp_below(epsilon)
    for bits in (16, 32, 64):
        low = int((1 << bits) / (k - 1 + bound))
        high = int(low * bound)
        if low >= 16 and close_enough(log_up(Fraction(high, low)), epsilon):
            break
    return {"bits": bits, "low": low, "high": high}
