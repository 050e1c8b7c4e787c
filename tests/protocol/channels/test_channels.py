"""The laws of all channels: exact epsilon, unbiasedness, variance, and who may register one."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from confide.protocol.channels.base import Array, Channel, LabelChannel
from confide.protocol.channels.randomized_response import KaryRR
from confide.protocol.channels.registry import LABEL_CHANNELS, auto, label_channels, register
from confide.protocol.channels.unary_encoding import UnaryEncoding
from confide.protocol.errors import BadInput, Refused
from confide.protocol.exact.exponentials import exp_below, log_up
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.base import Batch
from confide.protocol.methods.labels.query import LabelQuery
from confide.protocol.plan import Plan, digest
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse
from confide.protocol.wire.packing import read_batch, write_batch
from confide.protocol.wire.splitting import split_answer
from tests.support.owners.owners import LABEL_PLAN, changed, channel_of
from tests.support.truth.channels import GRID, make


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


@dataclass(frozen=True)
class Answers(KaryRR):
    """A toy channel that owes the product nothing but its base class: one byte a report."""

    name = "toy-answers"

    @property
    def report_bits(self) -> int:
        return 8

    def pack(self, reports: Array) -> bytes:
        return reports.astype(np.uint8).tobytes()

    def check(self, data: bytes, n: int) -> None:
        if len(data) != n:
            raise Refused(wire.Code.MALFORMED)
        if max(data, default=0) >= self.k:
            raise Refused(wire.Code.OUT_OF_ALPHABET)

    def unpack(self, data: bytes, n: int) -> Array:
        return np.frombuffer(data, dtype=np.uint8)


def test_a_channel_registered_by_a_test_carries_the_reports_of_a_plan() -> None:
    """Once registered, a plan names it, its batches are packed, cut and read, `auto` sees it, and
    its name is taken."""
    with pytest.raises(BadInput, match="channel of labels"):
        changed(LABEL_PLAN, channel=Answers.name)
    register(Answers)
    try:
        plan = changed(LABEL_PLAN, channel=Answers.name)
        channel, name = channel_of(plan), digest(plan.to_bytes())
        assert Plan.from_bytes(plan.to_bytes()) == plan
        assert Answers.name in label_channels(uniform_noise=True)
        with pytest.raises(BadInput, match="'toy-answers' is taken"):
            register(Answers)
        n = 20
        ids = np.arange(16 * n, dtype=np.uint16).view(np.uint8).reshape(n, 32)[:, :16]
        probs = np.full((n, plan.labels), 1 / plan.labels, dtype=np.float32)
        reports = channel.randomize(np.arange(n) % plan.labels, SeededEntropy(1))
        batch = Batch(ids, {"reports": reports, "probabilities": probs})
        packed = write_batch(batch, query=LabelQuery(channel), plan=name, round_=0)
        whole = wire.Answer(version=packed.version, code=wire.Code.OK, batch=packed)
        pieces = [
            read_batch(
                parse(wire.Answer, piece).batch, query=LabelQuery(channel), plan=name, round_=0
            )
            for piece in split_answer(whole.SerializeToString(), plan, most=300)
        ]
        assert len(pieces) > 1
        assert np.array_equal(
            np.concatenate([piece.columns["reports"] for piece in pieces]), reports
        )
    finally:
        del LABEL_CHANNELS[Answers.name]
