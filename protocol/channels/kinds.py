"""The channels: k-ary randomised response, subset selection, unary encoding, and a single bit."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from confide.protocol.channels.base import (
    CHUNK,
    Array,
    Channel,
    Flags,
    Floats,
    LabelChannel,
    PairLaw,
    SetChannel,
    close_enough,
    two_levels,
)
from confide.protocol.errors import BadInput
from confide.protocol.exact.exponentials import exp_below, log_up
from confide.protocol.exact.sampling import (
    Entropy,
    bernoulli,
    in_chunks,
    uniform,
    words,
    words_below,
)


@dataclass(frozen=True)
class KaryRR(LabelChannel):
    """k-ary randomised response: the own label with weight `high`, every other with weight `low`.
    Reports are labels."""

    bits: int = field(init=False)
    low: int = field(init=False)
    high: int = field(init=False)
    name = "k-rr"

    def _integers(self) -> dict[str, int]:
        return two_levels(self.k, self.epsilon)

    @property
    def hit(self) -> Fraction:
        return Fraction(self.high, self.high + (self.k - 1) * self.low)

    @property
    def spill(self) -> Fraction:
        return Fraction(self.low, self.high + (self.k - 1) * self.low)

    def randomize(self, values: Array, entropy: Entropy) -> Array:
        """Labels in, labels out (the smallest unsigned type that holds 2k).

        The word divided by `low` counts the other labels after the own one; what is left over
        (weight `high`) goes all the way round to the own label. Only vectorised integer arithmetic:
        a table would be slower.
        """
        values = self.check_labels(values)
        k, total = self.k, self.high + (self.k - 1) * self.low
        dtype = np.dtype(np.uint8 if k <= 1 << 7 else np.uint16)
        out = np.empty(values.shape, dtype=dtype)

        def work(part: slice) -> None:
            word = words_below(total, part.stop - part.start, self.bits, entropy)
            step = word // word.dtype.type(self.low)
            # Two arrays, because the minimum with a scalar is several times slower.
            step = np.minimum(step, np.full_like(step, k - 1)).astype(dtype)
            step += values[part].astype(dtype, copy=False)
            step += dtype.type(1)
            np.minimum(step, step - dtype.type(k), out=out[part])

        in_chunks(work, len(values), CHUNK, entropy)
        return out

    def supports(self, reports: Array) -> Flags:
        return np.equal.outer(self.check_labels(reports), np.arange(self.k))

    def supported(self, reports: Array, scores: Array) -> Array:
        return np.asarray(scores[np.arange(len(reports)), self.check_labels(reports)])

    def law(self, value: int) -> dict[int, Fraction]:
        return {report: self.hit if report == value else self.spill for report in range(self.k)}

    def pair_law(self, value: int, rival: int) -> PairLaw:
        law = {(True, False): (self.hit, self.spill), (False, True): (self.spill, self.hit)}
        if self.k > 2:
            rest = (self.k - 2) * self.spill
            law[False, False] = (rest, rest)
        return law

    def support_range(self, set_size: int) -> tuple[int, int]:
        return int(set_size == self.k), int(set_size > 0)

    def variance(self, set_size: float) -> float:
        inside = self.hit + Fraction(set_size - 1) * self.spill
        return float(inside * (1 - inside) / (self.hit - self.spill) ** 2)


@dataclass(frozen=True)
class SubsetSelection(SetChannel):
    """Subset selection (Ye & Barg 2018): a set of `size` labels, the own one in it with probability
    `inside / 2^64`, the others uniform."""

    size: int = field(init=False)
    inside: int = field(init=False)
    name = "subset"

    def _integers(self) -> dict[str, int]:
        bound = exp_below(self.epsilon)
        size = max(1, round(self.k / (bound + 1)))
        return {
            "size": size,
            "inside": int((1 << 64) * size * bound / (size * bound + self.k - size)),
        }

    @property
    def hit(self) -> Fraction:
        return Fraction(self.inside, 1 << 64)

    @property
    def spill(self) -> Fraction:
        return (self.size - self.hit) / (self.k - 1)

    def randomize(self, values: Array, entropy: Entropy) -> Flags:
        values = self.check_labels(values)
        out = np.empty((len(values), self.k), dtype=np.bool_)

        def work(part: slice) -> None:
            own = values[part].astype(np.int64)
            # Column j stands for label own + j, so column 0 is the own label; turned back at the
            # end.
            turned = np.zeros((own.size, self.k), dtype=np.bool_)
            turned[:, 0] = bernoulli(self.inside, own.size, entropy)
            for kept, others in ((True, self.size - 1), (False, self.size)):
                at = np.flatnonzero(turned[:, 0] == kept)
                turned[at, 1:] = uniform_subsets(at.size, self.k - 1, others, entropy)
            columns = np.arange(self.k) - own[:, None]
            columns[columns < 0] += self.k
            out[part] = np.take_along_axis(turned, columns, axis=1)

        in_chunks(work, len(values), max(1, CHUNK // self.k), entropy)
        return out

    def law(self, value: int) -> dict[tuple[bool, ...], Fraction]:
        self.check_enumerable(math.comb(self.k, self.size))
        within = self.hit / math.comb(self.k - 1, self.size - 1)
        without = (1 - self.hit) / math.comb(self.k - 1, self.size)
        return {
            tuple(label in chosen for label in range(self.k)): within
            if value in chosen
            else without
            for chosen in itertools.combinations(range(self.k), self.size)
        }

    def pair_law(self, value: int, rival: int) -> PairLaw:
        both = self.hit * Fraction(self.size - 1, self.k - 1)
        rival_only = (1 - self.hit) * Fraction(self.size, self.k - 1)
        neither = 1 - self.hit - rival_only
        law = {
            (True, True): (both, both),
            (True, False): (self.hit - both, rival_only),
            (False, True): (rival_only, self.hit - both),
            (False, False): (neither, neither),
        }
        return {outcome: pair for outcome, pair in law.items() if any(pair)}

    def support_range(self, set_size: int) -> tuple[int, int]:
        return max(0, set_size + self.size - self.k), min(set_size, self.size)

    def variance(self, set_size: float) -> float:
        """A mixture of two hypergeometric counts, by whether the own label was kept."""
        others, share = self.k - 1, Fraction(set_size - 1) / (self.k - 1)
        mean = self.hit + (self.size - self.hit) * share
        second = Fraction(0)
        for kept, chance in ((1, self.hit), (0, 1 - self.hit)):
            drawn = self.size - kept
            spread = drawn * share * (1 - share) * Fraction(others - drawn, max(others - 1, 1))
            second += chance * ((kept + drawn * share) ** 2 + spread)
        return float((second - mean**2) / (self.hit - self.spill) ** 2)


@dataclass(frozen=True)
class UnaryEncoding(SetChannel):
    """Optimised unary encoding (Wang et al. 2017): the own flag is on with probability 1/2, every
    other with `noise / 2^bits`, about 1/(e^epsilon + 1)."""

    bits: int = field(init=False)
    noise: int = field(init=False)
    name = "unary"

    def _integers(self) -> dict[str, int]:
        bound = exp_below(self.epsilon)
        for bits in (16, 32, 64):
            noise = math.ceil((1 << bits) / (bound + 1))
            reached = log_up(Fraction((1 << bits) - noise, noise)) if 2 * noise < 1 << bits else 0.0
            if close_enough(reached, self.epsilon):
                break
        return {"bits": bits, "noise": noise}

    @property
    def hit(self) -> Fraction:
        return Fraction(1, 2)

    @property
    def spill(self) -> Fraction:
        return Fraction(self.noise, 1 << self.bits)

    def randomize(self, values: Array, entropy: Entropy) -> Flags:
        values = self.check_labels(values)
        out = np.empty((len(values), self.k), dtype=np.bool_)

        def work(part: slice) -> None:
            own = values[part]
            word = words(own.size * self.k, self.bits, entropy).reshape(own.size, self.k)
            flags = word < word.dtype.type(self.noise)
            at = np.arange(own.size)
            flags[at, own] = word[at, own] < word.dtype.type(1 << (self.bits - 1))
            out[part] = flags

        in_chunks(work, len(values), max(1, CHUNK // self.k), entropy)
        return out

    def law(self, value: int) -> dict[tuple[bool, ...], Fraction]:
        self.check_enumerable(1 << self.k)
        half = Fraction(1, 2)
        return {
            flags: half
            * math.prod(
                (
                    self.spill if on else 1 - self.spill
                    for label, on in enumerate(flags)
                    if label != value
                ),
                start=Fraction(1),
            )
            for flags in itertools.product((False, True), repeat=self.k)
        }

    def pair_law(self, value: int, rival: int) -> PairLaw:
        noise, quiet = self.spill / 2, (1 - self.spill) / 2
        return {
            (True, True): (noise, noise),
            (True, False): (quiet, noise),
            (False, True): (noise, quiet),
            (False, False): (quiet, quiet),
        }

    def support_range(self, set_size: int) -> tuple[int, int]:
        return 0, set_size

    def variance(self, set_size: float) -> float:
        """Independent flags."""
        flags = Fraction(1, 4) + Fraction(set_size - 1) * self.spill * (1 - self.spill)
        return float(flags / (self.hit - self.spill) ** 2)


@dataclass(frozen=True)
class Bit(Channel):
    """Randomised response on one bit (Warner 1965): told as it is with weight `high`, flipped with
    weight `low`."""

    bits: int = field(init=False)
    low: int = field(init=False)
    high: int = field(init=False)
    name = "bit"

    def _integers(self) -> dict[str, int]:
        return two_levels(2, self.epsilon)

    @property
    def hit(self) -> Fraction:
        return Fraction(self.high, self.high + self.low)

    @property
    def spill(self) -> Fraction:
        return Fraction(self.low, self.high + self.low)

    def randomize(self, values: Array, entropy: Entropy) -> Flags:
        values = np.asarray(values)
        if values.ndim != 1 or not ((values == 0) | (values == 1)).all():
            raise BadInput(
                f"bits have shape {values.shape} and type {values.dtype}; accepted is one row of 0 "
                "and 1"
            )
        word = words_below(self.high + self.low, values.size, self.bits, entropy)
        return values.astype(np.bool_) ^ (word < word.dtype.type(self.low))

    def weights(self, reports: Array) -> Floats:
        """Unbiased estimates of the bits, one a report."""
        return self._unbiased(np.asarray(reports, dtype=np.bool_))

    def law(self, value: int) -> dict[int, Fraction]:
        return {report: self.hit if report == value else self.spill for report in (0, 1)}

    def pair_law(self, value: int, rival: int) -> PairLaw:
        return {(True, False): (self.hit, self.spill), (False, True): (self.spill, self.hit)}

    def observed(self, rate: Fraction) -> Fraction:
        """The share of ones among reports when a share `rate` of the true bits is one."""
        return self.spill + (self.hit - self.spill) * rate


def uniform_subsets(count: int, items: int, size: int, entropy: Entropy) -> Flags:
    """`count` uniform subsets of `size` out of `items`, as flags (Floyd's algorithm, one column of
    draws a step)."""
    chosen = np.zeros((count, items), dtype=np.bool_)
    rows = np.arange(count)
    for last in range(items - size, items):
        pick = uniform(last + 1, count, entropy)
        pick[chosen[rows, pick]] = last
        chosen[rows, pick] = True
    return chosen


LABEL_CHANNELS: dict[str, Callable[..., LabelChannel]] = {
    "k-rr": KaryRR,
    "subset": SubsetSelection,
    "unary": UnaryEncoding,
}
CHANNELS: dict[str, Callable[..., Channel]] = {**LABEL_CHANNELS, "bit": Bit}


def auto(*, k: int, epsilon: float, expected_size: float = 2.0) -> LabelChannel:
    """The label channel of least variance for sets of the expected size; of near equals (1 %) the
    shortest report."""
    size = min(max(expected_size, 1.0), float(k))
    made = [make(k=k, epsilon=epsilon) for make in LABEL_CHANNELS.values()]
    least = min(channel.variance(size) for channel in made)
    return next(channel for channel in made if channel.variance(size) <= 1.01 * least)
