"""Averages and bands of labels and bits cover as they claim, on populations of known coverage.

Levels are as few as keep the tests short: what is promised does not depend on their number.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.aggregator.procedures.bits import procedure as bits
from confide.aggregator.procedures.certify import Search, null_rate
from confide.aggregator.procedures.labels.payoffs import at_level, coverage_payoffs
from confide.aggregator.procedures.labels.procedure import certified
from confide.aggregator.procedures.ladder import Ladder, public_ladder
from confide.protocol.certificate import BAND, MARGINAL, BitRung, LocalCertificate
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.registry import auto
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.levels import Levels, marginal_levels
from confide.protocol.methods.labels.query import LabelTally
from confide.simulation.driver import LabelUsers, drive
from tests.support.truth.bit_tallies import POPULATIONS, Curve, campaign
from tests.support.truth.known import assert_mean_at_most, assert_rate_at_most

ALPHA = DELTA = 0.1
K, N = 10, 1_000
LADDER = public_ladder(60)
GRID = np.linspace(0, 1, 20_001)
AVERAGE = marginal_levels(ALPHA, error=0.015, count=6)
WIDE: Levels = tuple((at, DELTA / 5) for at in (0.02, 0.05, ALPHA, 0.2, 0.4))

Run = Callable[[Curve, int, Levels, float], LocalCertificate]


def label_records(curve: Curve, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scores of every label whose own ones have this curve, on a fine grid, and the labels."""
    truth, scores = rng.integers(0, K, N), rng.random((N, K)) ** 0.2
    places = np.searchsorted(np.append(curve(GRID)[:-1], 1.0), rng.random(N))
    scores[np.arange(N), truth] = GRID[places]
    return scores, truth


def of_labels(ladder: Ladder, epsilon: float = 4.0) -> Run:
    def run(curve: Curve, seed: int, levels: Levels, delta: float) -> LocalCertificate:
        scores, truth = label_records(curve, np.random.default_rng([seed, 5]))
        users = LabelUsers(scores, truth, SeededEntropy("levels", seed))
        asked: dict[str, Any] = {"alpha": ALPHA, "delta": delta, "levels": levels, "ladder": ladder}
        made = certified(channel=auto(k=K, epsilon=epsilon), **asked)
        found: LocalCertificate = drive(made, users)
        return found

    return run


def of_bits(variant: str, n: int, **own: Any) -> Run:
    def run(curve: Curve, seed: int, levels: Levels, delta: float) -> LocalCertificate:
        asked = {"channel": Bit(epsilon=4.0), "alpha": ALPHA, "delta": delta, "levels": levels}
        made = bits.procedure(variant=variant, n=n, **asked, **own)
        return campaign(made, curve, n=n, seed=[seed, n])

    return run


RUNS: dict[str, Run] = {
    "labels": of_labels(LADDER),
    "bits": of_bits("certified", 6_000),
    "one-shot": of_bits("one-shot", 6_000, ladder=public_ladder(30)),
}


# Rungs so near to each other that planted errors show.
FINE = of_labels(np.linspace(0.5, 1.0, 251))


def missed(name: str, curve: Curve, threshold: float) -> float:
    """What a threshold misses; scores of labels are on the grid."""
    if threshold >= 1:
        return 0.0
    if name == "labels":
        threshold = GRID[max(int(np.searchsorted(GRID, threshold, side="right")) - 1, 0)]
    return 1 - float(curve(np.array([threshold]))[0])


@pytest.mark.parametrize("name", list(RUNS))
@pytest.mark.parametrize("population", list(POPULATIONS))
def test_averages_miss_at_most_alpha(name: str, population: str) -> None:
    """In the mean over 60 campaigns (false alarm 1e-5)."""
    curve = POPULATIONS[population]
    found = [RUNS[name](curve, seed, AVERAGE, 0.0) for seed in range(60)]
    assert {one.kind for one in found} == {MARGINAL}
    assert_mean_at_most([missed(name, curve, one.threshold) for one in found], ALPHA)


@pytest.mark.parametrize("name", ["labels", "one-shot"])
@pytest.mark.parametrize("population", list(POPULATIONS))
def test_bands_hold_at_all_levels_at_once(name: str, population: str) -> None:
    """Campaigns in which any level covers too little are consistent with delta (false alarm 1e-6),
    and the published threshold is that of alpha."""
    curve = POPULATIONS[population]
    found = [RUNS[name](curve, seed, WIDE, DELTA) for seed in range(60)]
    assert {one.kind for one in found} == {BAND}
    failures = sum(_fails(name, curve, one) for one in found)
    assert_rate_at_most(failures, len(found), DELTA)
    assert all(one.threshold == one.levels[2].threshold for one in found)


def _fails(name: str, curve: Curve, found: LocalCertificate) -> bool:
    return any(missed(name, curve, one.threshold) > one.alpha + 1e-9 for one in found.levels)


@pytest.mark.parametrize(
    ("name", "bound", "campaigns"),
    [("labels", 0.25, 50), ("bits", 0.16, 150), ("one-shot", 0.5, 50)],
)
def test_a_planted_curve_that_spends_too_much_is_caught(
    name: str, bound: float, campaigns: int
) -> None:
    """Levels that bound the mean by more than alpha miss more than alpha."""
    curve, lax = POPULATIONS["uniform"], marginal_levels(bound, error=0.01, count=6)
    found = [RUNS[name](curve, seed, lax, 0.0) for seed in range(campaigns)]
    with pytest.raises(AssertionError, match="in the mean"):
        assert_mean_at_most([missed(name, curve, one.threshold) for one in found], ALPHA)


@pytest.mark.parametrize(("name", "run"), [("labels", FINE), ("one-shot", RUNS["one-shot"])])
def test_a_planted_band_that_does_not_share_delta_is_caught(name: str, run: Run) -> None:
    """Each of eight levels tested at half."""
    curve = POPULATIONS["uniform"]
    whole = tuple((at, 0.5) for at in (ALPHA, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45))
    failures = sum(_fails(name, curve, run(curve, seed, whole, DELTA)) for seed in range(24))
    with pytest.raises(AssertionError, match="failures in 24 campaigns"):
        assert_rate_at_most(failures, 24, DELTA)


def test_averages_of_labels_are_sharper_than_promises_of_each_calibration() -> None:
    """The mean excess of coverage in 24 campaigns is less than 0.7 of the PAC one's on the same
    reports."""
    curve, levels = POPULATIONS["uniform"], marginal_levels(ALPHA, error=0.016, count=12)
    excess = [
        np.mean([FINE(curve, seed, asked, delta).threshold for seed in range(24)]) - (1 - ALPHA)
        for asked, delta in ((levels, 0.0), ((), DELTA))
    ]
    assert excess[0] < 0.7 * excess[1]


@pytest.mark.parametrize("largest", [0, 3])
@pytest.mark.parametrize("level", [0.02, 0.3])
def test_payoffs_of_another_level_are_those_of_the_reports(level: float, largest: int) -> None:
    """Shifted sums of powers are the sums of the shifted payoffs."""
    scores, truth = label_records(POPULATIONS["uniform"], np.random.default_rng(3))
    for epsilon in (0.5, 4.0):
        channel = auto(k=K, epsilon=epsilon)
        tally = LabelTally(scores, channel.randomize(truth, SeededEntropy("shift")))
        asked: dict[str, Any] = {"ladder": LADDER, "largest": largest}
        rungs, wanted = coverage_payoffs(tally, channel, alpha=level, **asked)
        same_rungs, plain = coverage_payoffs(tally, channel, alpha=ALPHA, **asked)
        found = at_level(plain, channel, alpha=ALPHA, level=level, largest=largest)
        assert rungs == same_rungs
        assert found.most == pytest.approx(wanted.most)
        np.testing.assert_allclose(found.sums, wanted.sums, rtol=1e-9, atol=1e-9)


def test_every_level_of_bits_is_a_search_of_its_own() -> None:
    """Its stages, tested by a search that knows no other level, leave what the certificate says;
    stages are those of the campaign, and some level skips one."""
    skipped = 0
    for seed in range(40):
        found = RUNS["bits"](POPULATIONS["heavy tail"], seed, AVERAGE, 0.0)
        counts = []
        for one in found.levels:
            channel = Bit(epsilon=4.0)
            search = Search(delta=one.delta, m0=null_rate(channel, one.alpha))
            for rung in one.rungs:
                assert isinstance(rung, BitRung)
                again = search.test(rung.threshold, n=rung.n, ones=rung.ones, rest=rung.rest)
                assert again == replace(rung)
            assert search.certified == one.threshold
            counts.append(len(one.rungs))
        skipped += len({*counts}) > 1
    assert skipped


def test_too_few_bits_for_the_last_level_say_so() -> None:
    """An average needs all levels: nobody is asked where the smallest delta is out of reach."""
    found = RUNS["bits"](POPULATIONS["uniform"], 1, AVERAGE, 0.0)
    few = bits.procedure(
        variant="certified",
        channel=Bit(epsilon=1.0),
        alpha=ALPHA,
        delta=0.0,
        n=40,
        levels=AVERAGE,
    )
    trivial = campaign(few, POPULATIONS["uniform"], n=40, seed=1)
    assert found.threshold < 1 == trivial.threshold
    assert trivial.kind == MARGINAL
    assert len(trivial.levels) == len(AVERAGE)
    assert "too few reports" in str(trivial.reason)
