from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from confide.protocol.channels.base import Channel, LabelChannel
from confide.protocol.channels.kinds import (
    CHANNELS,
    LABEL_CHANNELS,
    Bit,
    KaryRR,
    SubsetSelection,
    UnaryEncoding,
    auto,
)
from confide.protocol.errors import BadInput
from confide.protocol.exact.exponentials import exp_below, log_up
from confide.protocol.exact.sampling import Entropy, SeededEntropy, os_entropy, words
from tests.support.known import Scripted, assert_follows

KS = (2, 3, 10, 26, 100, 1000)
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
GRID = [(name, k, epsilon) for name in LABEL_CHANNELS for k in KS for epsilon in EPSILONS]
GRID += [("bit", 2, epsilon) for epsilon in EPSILONS]


def make(name: str, k: int, epsilon: float) -> Channel:
    return (
        CHANNELS[name](epsilon=epsilon) if name == "bit" else CHANNELS[name](k=k, epsilon=epsilon)
    )


def assert_law_holds(channel: Channel, k: int) -> None:
    """The contract of a channel, in rational arithmetic: a law, private to the epsilon claimed,
    with unbiased weights."""
    scale = channel.hit - channel.spill
    on, off = (1 - channel.spill) / scale, -channel.spill / scale
    pair = channel.pair_law(0, k - 1)
    for side in (0, 1):
        assert sum(p[side] for p in pair.values()) == 1
        for label in (0, 1):
            mean = sum(p[side] * (on if outcome[label] else off) for outcome, p in pair.items())
            assert mean == (1 if label == side else 0)
    worst = max(max(p / q, q / p) for p, q in pair.values())
    assert worst <= exp_below(channel.requested)
    assert log_up(worst) == channel.epsilon
    assert channel.requested - 1e-3 <= channel.epsilon <= channel.requested


def assert_listed_law_holds(channel: Channel, k: int) -> None:
    """The same over every single report, and the float weights with it."""
    laws = [channel.law(value) for value in range(k)]
    reports = list(laws[0])
    weights = channel.weights(np.array(reports))  # type: ignore[attr-defined]
    for value, law in enumerate(laws):
        assert sum(law.values()) == 1
        assert max(law[r] / laws[0][r] for r in reports) <= exp_below(channel.requested)
        mean = np.array([float(law[r]) for r in reports]) @ weights
        expected = float(value) if weights.ndim == 1 else np.eye(k)[value]
        np.testing.assert_allclose(mean, expected, atol=1e-9)


@pytest.mark.parametrize(("name", "k", "epsilon"), GRID)
def test_the_law_is_private_and_unbiased_exactly(name: str, k: int, epsilon: float) -> None:
    """Every channel keeps its contract for every k and epsilon, in rational arithmetic."""
    assert_law_holds(make(name, k, epsilon), k)


@pytest.mark.parametrize(
    ("name", "k", "epsilon"), [g for g in GRID if g[1] <= 10 or (g[0] == "k-rr" and g[1] <= 100)]
)
def test_the_listed_law_agrees(name: str, k: int, epsilon: float) -> None:
    """Where all reports can be listed, each of them keeps the contract."""
    assert_listed_law_holds(make(name, k, epsilon), k)


@pytest.mark.parametrize("name", ["subset", "unary"])
def test_the_pair_law_sums_up_the_listed_law(name: str) -> None:
    """The four outcomes that tell two labels apart have the probability of the reports behind
    them."""
    channel = make(name, 6, 1.0)
    laws = [channel.law(value) for value in (1, 4)]
    for outcome, pair in channel.pair_law(1, 4).items():
        for law, p in zip(laws, pair, strict=True):
            assert (
                sum(chance for report, chance in law.items() if (report[1], report[4]) == outcome)
                == p
            )


def test_a_law_too_long_to_list_is_refused() -> None:
    """A law of 2^26 reports is not enumerated; the message says what to use instead."""
    with pytest.raises(BadInput, match="pair_law"):
        UnaryEncoding(k=26, epsilon=1.0).law(0)


@dataclass(frozen=True)
class OffByOne(KaryRR):
    """Planted: one unit of weight too many on the own label."""

    def _integers(self) -> dict[str, int]:
        integers = super()._integers()
        return {**integers, "high": integers["high"] + 1}


@dataclass(frozen=True)
class RhoConfused(KaryRR):
    """Planted: another label is said to have all of the flip probability, not 1/(k - 1) of it."""

    @property
    def spill(self) -> Fraction:
        return 1 - self.hit


def test_a_planted_off_by_one_in_the_law_is_caught() -> None:
    """One unit of weight above the bound breaks the exact ratio, at 16 as at 32 bits."""
    for k, epsilon in ((10, 1.0), (1000, 1.0)):
        with pytest.raises(AssertionError):
            assert_law_holds(OffByOne(k=k, epsilon=epsilon), k)


def test_a_planted_rho_confusion_is_caught() -> None:
    """Mistaking rho for rho/(k - 1) gives probabilities that do not sum to one."""
    with pytest.raises(AssertionError):
        assert_law_holds(RhoConfused(k=10, epsilon=1.0), 10)


def assert_sampler_exact(channel: KaryRR | Bit, k: int, value: int) -> None:
    """Deal every 16-bit word once: each report must come up exactly as often as the law says.

    Words past the total are drawn again and get one known word, whose report is taken off; two
    choices of it tell a redraw from a word that was folded back.
    """
    assert channel.bits == 16
    total = channel.high + (k - 1) * channel.low
    for then in (0, total - 1):
        reports = channel.randomize(
            np.full(1 << 16, value), Scripted(range(1 << 16), 16, then=then)
        )
        counts = np.bincount(reports, minlength=k)
        counts[int(channel.randomize(np.array([value]), Scripted([then], 16))[0])] -= (
            1 << 16
        ) - total
        assert {r: Fraction(int(c), total) for r, c in enumerate(counts)} == channel.law(value)


@pytest.mark.parametrize("k", [2, 3, 10, 26, 100])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_the_16_bit_k_rr_sampler_is_the_law(k: int, epsilon: float) -> None:
    """Over all 65,536 words the sampler's counts are the law's integers, for the first and the last
    label."""
    for value in (0, k - 1):
        assert_sampler_exact(KaryRR(k=k, epsilon=epsilon), k, value)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_bit_sampler_is_the_law(epsilon: float) -> None:
    """Over all 65,536 words a bit is flipped exactly as often as the law says."""
    for value in (0, 1):
        assert_sampler_exact(Bit(epsilon=epsilon), 2, value)


@dataclass(frozen=True)
class ModuloBiased(KaryRR):
    """Planted: redraws are replaced by a remainder, which favours small words."""

    def randomize(self, values: Any, entropy: Entropy) -> Any:
        total = self.high + (self.k - 1) * self.low
        folded = words(len(values), 16, entropy) % total
        return super().randomize(values, Scripted(folded.tolist(), 16))


@dataclass(frozen=True)
class ShiftedSampler(KaryRR):
    """Planted: the sampler starts counting one word late."""

    def randomize(self, values: Any, entropy: Entropy) -> Any:
        late = np.maximum(words(len(values), 16, entropy).astype(np.int64) - 1, 0)
        return super().randomize(values, Scripted(late.tolist(), 16))


@pytest.mark.parametrize("planted", [ModuloBiased, ShiftedSampler])
def test_planted_sampler_faults_are_caught(planted: Callable[..., KaryRR]) -> None:
    """A modulo bias of a few words in 65,536, and a shift by one word, fail the exact count."""
    with pytest.raises(AssertionError):
        assert_sampler_exact(planted(k=26, epsilon=1.0), 26, 3)


@pytest.mark.parametrize(
    ("k", "epsilon", "bits"), [(1000, 1.0, 32), (100, 0.1, 32), (30_000, 0.1, 32), (2, 25.0, 64)]
)
def test_wide_k_rr_changes_report_at_exactly_the_weights(k: int, epsilon: float, bits: int) -> None:
    """The report is a step function of the word; both sides of its steps are checked, which fixes
    the law."""
    channel = KaryRR(k=k, epsilon=epsilon)
    assert channel.bits == bits
    steps = sorted({1, 2, k // 2, k - 1} - {k})
    edges = [w for s in steps for w in (s * channel.low - 1, s * channel.low)]
    last = channel.high + (k - 1) * channel.low - 1
    reports = channel.randomize(
        np.zeros(len(edges) + 1, dtype=np.int64), Scripted([*edges, last], bits)
    )
    expected = [r for s in steps for r in (s, (s + 1) % k)]
    assert reports.tolist() == [*expected, 0]


def test_unary_flags_switch_at_exactly_the_weights() -> None:
    """The own flag switches at half of the words, every other at `noise`."""
    channel = UnaryEncoding(k=3, epsilon=1.0)
    half = 1 << (channel.bits - 1)
    dealt = [half - 1, channel.noise - 1, channel.noise, half, 0, 0]
    flags = channel.randomize(np.array([0, 0]), Scripted(dealt, channel.bits))
    assert flags.tolist() == [[True, True, False], [False, True, True]]


@pytest.mark.parametrize(
    ("name", "k", "epsilon"),
    [("k-rr", 26, 1.0), ("k-rr", 300, 4.0), ("subset", 6, 0.5), ("unary", 4, 1.0), ("bit", 2, 0.5)],
)
def test_reports_follow_the_law(name: str, k: int, epsilon: float) -> None:
    """Chi-square of 400,000 vectorised reports against the law; false-alarm probability 1e-9."""
    channel = make(name, k, epsilon)
    value = k - 1
    reports = channel.randomize(np.full(400_000, value), SeededEntropy(name, k))
    law = channel.law(value)
    place = {report: i for i, report in enumerate(law)}
    if reports.ndim == 1:
        counts = np.bincount(reports.astype(np.int64), minlength=len(law))
    else:
        seen, times = np.unique(reports, axis=0, return_counts=True)
        counts = np.zeros(len(law), dtype=np.int64)
        counts[[place[tuple(row)] for row in seen.tolist()]] = times
    assert_follows(counts, np.array([float(p) for p in law.values()]))


@pytest.mark.parametrize("k", [100, 1000])
def test_subset_reports_keep_their_size_and_rate(k: int) -> None:
    """Every report holds `size` labels, the own one at the stated rate (6 standard deviations,
    false alarm 2e-9)."""
    channel = SubsetSelection(k=k, epsilon=1.0)
    own = np.arange(20_000) % k
    reports = channel.randomize(own, SeededEntropy(k))
    assert (reports.sum(axis=1) == channel.size).all()
    hit = float(channel.hit)
    assert abs(reports[np.arange(len(own)), own].mean() - hit) <= 6 * np.sqrt(
        hit * (1 - hit) / len(own)
    )


def test_the_operating_system_source_serves_in_parallel() -> None:
    """Many chunks drawn from several threads still follow the law; false-alarm probability 1e-9."""
    channel = KaryRR(k=5, epsilon=1.0)
    reports = channel.randomize(np.zeros(1_000_000, dtype=np.int64), os_entropy)
    assert_follows(
        np.bincount(reports, minlength=5), np.array([float(p) for p in channel.law(0).values()])
    )


@pytest.mark.parametrize("name", list(LABEL_CHANNELS))
@pytest.mark.parametrize("set_size", [1, 2, 4])
def test_variance_is_that_of_the_law(name: str, set_size: int) -> None:
    """The variance that `auto` compares equals the one summed over the law."""
    channel = LABEL_CHANNELS[name](k=6, epsilon=1.0)
    law = channel.law(0)
    x = channel.weights(np.array(list(law)))[:, :set_size].sum(axis=1)
    p = np.array([float(chance) for chance in law.values()])
    np.testing.assert_allclose(channel.variance(set_size), p @ x**2 - (p @ x) ** 2, rtol=1e-9)


def test_auto_takes_the_least_variance() -> None:
    """k-RR for few labels or much epsilon, subset selection for many labels and little epsilon."""
    assert auto(k=10, epsilon=4.0).name == "k-rr"
    assert auto(k=10, epsilon=1.0).name == "subset"
    chosen = auto(k=100, epsilon=2.0)
    assert chosen.variance(2.0) < KaryRR(k=100, epsilon=2.0).variance(2.0) / 8


@pytest.mark.parametrize(
    "channel",
    [make(k=7, epsilon=1.0) for make in LABEL_CHANNELS.values()],
    ids=list(LABEL_CHANNELS),
)
def test_support_range_encloses_every_report(channel: LabelChannel) -> None:
    """For a set of each size the supported labels lie in the stated range, and both ends occur."""
    flags = np.array(list(channel.supports(np.array(list(channel.law(0))))))
    for size in range(8):
        counts = flags[:, :size].sum(axis=1)
        assert (counts.min(), counts.max()) == channel.support_range(size)


@pytest.mark.parametrize(
    ("k", "epsilon", "says"),
    [
        (1, 1.0, "k is 1"),
        (10, 0.0, "epsilon is 0"),
        (10, -1.0, "epsilon is -1"),
        (10, float("inf"), "epsilon is inf"),
        (10, float("nan"), "nan"),
    ],
)
def test_impossible_channels_are_refused(k: int, epsilon: float, says: str) -> None:
    """k < 2 and epsilons that are not positive and finite are refused with the value found."""
    for make_channel in LABEL_CHANNELS.values():
        with pytest.raises(BadInput, match=says):
            make_channel(k=k, epsilon=epsilon)


@pytest.mark.parametrize("labels", [[0, 10], [-1, 0], [0.0, 1.0], [[0], [1]]])
def test_labels_out_of_range_are_refused(labels: list[Any]) -> None:
    """Labels outside 0..k-1, of a float type or of the wrong shape never reach the randomiser."""
    for make_channel in LABEL_CHANNELS.values():
        with pytest.raises(BadInput, match="accepted"):
            make_channel(k=10, epsilon=1.0).randomize(np.array(labels), os_entropy)


@pytest.mark.parametrize("dtype", ["i1", "u1", "<i2", ">i2", "<i8", ">i8", "<u8", ">u8"])
def test_labels_of_any_integer_type_serve(dtype: str) -> None:
    """Width, sign and byte order of the labels change no report, nor does a stride."""
    plain = np.arange(1_000) % 26
    strided = np.repeat(plain.astype(dtype), 2)[::2]
    for make_channel in LABEL_CHANNELS.values():
        channel = make_channel(k=26, epsilon=1.0)
        assert np.array_equal(
            channel.randomize(plain, SeededEntropy(1)), channel.randomize(strided, SeededEntropy(1))
        )
        with pytest.raises(BadInput, match="labels run from"):
            make_channel(k=25, epsilon=1.0).randomize(strided, SeededEntropy(1))


@pytest.mark.parametrize("k", [129, 200, 256, 1000])
def test_negative_labels_of_a_narrow_type_are_refused(k: int) -> None:
    """A negative int8 is not taken for the label it would be as a byte."""
    for value in (-128, -57, -1):
        for make_channel in LABEL_CHANNELS.values():
            with pytest.raises(BadInput, match=f"labels run from {value}"):
                make_channel(k=k, epsilon=1.0).randomize(
                    np.array([5, value], dtype=np.int8), os_entropy
                )
            make_channel(k=k, epsilon=1.0).randomize(np.array([5, 127], dtype=np.int8), os_entropy)


def test_seeded_randomisation_repeats() -> None:
    """A seeded source gives the same reports whatever the number of chunks before it."""
    for name, k in (("k-rr", 26), ("subset", 26), ("unary", 26), ("bit", 2)):
        values = np.arange(300_000) % k
        channel = make(name, k, 1.0)
        assert np.array_equal(
            channel.randomize(values, SeededEntropy(1)), channel.randomize(values, SeededEntropy(1))
        )
