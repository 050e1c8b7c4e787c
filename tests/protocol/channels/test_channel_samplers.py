"""Samplers draw from exactly the law of their channel, and take labels of any integer type."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from confide.protocol.channels.bit import Bit
from confide.protocol.channels.randomized_response import KaryRR
from confide.protocol.channels.registry import LABEL_CHANNELS
from confide.protocol.channels.subset_selection import SubsetSelection
from confide.protocol.channels.unary_encoding import UnaryEncoding
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import Entropy, SeededEntropy, os_entropy, words
from tests.support.truth.channels import EPSILONS, make
from tests.support.truth.known import Scripted, assert_follows


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
