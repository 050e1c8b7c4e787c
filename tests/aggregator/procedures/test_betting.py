import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.aggregator.procedures.labels import betting
from confide.aggregator.procedures.labels.betting import Payoffs, betting_evidence, block_ends
from tests.support.known import assert_rate_at_most

Floats = NDArray[np.float64]

DELTA = 0.1


def payoffs(d: Floats, most: float) -> Payoffs:
    """The payoffs (runs, n) of many runs."""
    ends = block_ends(d.shape[1])
    sums = [np.add.reduceat(d**power, ends[:-1], axis=1) for power in range(1, 5)]
    return Payoffs(np.stack(sums), np.diff(ends), most)


def coins(mean: float, m0: float, *, runs: int, n: int, seed: int) -> Floats:
    """Coins that are 1 with probability `mean`, tested against m0: (x - m0) / m0."""
    x = np.random.default_rng(seed).random((runs, n)) < mean
    return np.asarray((x - m0) / m0)


def test_capital_is_a_supermartingale_at_the_bound() -> None:
    """At mean m0 the capital reaches 1/delta in at most a share delta of runs (false alarm 1e-6);
    just above, in most."""
    for mean, at_most in ((0.6, True), (0.7, False)):
        d = coins(mean, 0.6, runs=1_000, n=400, seed=5)
        evidence, needed = betting_evidence(payoffs(d, 0.4 / 0.6), delta=DELTA)
        reached = int(np.count_nonzero(evidence >= needed))
        if at_most:
            assert_rate_at_most(reached, 1_000, DELTA)
        else:
            assert reached > 900


def test_an_order_that_depends_on_reports_is_caught() -> None:
    """Reports in the order of what they pay, which is no order independent of them, reject far too
    often."""
    d = np.sort(coins(0.6, 0.6, runs=1_000, n=400, seed=5), axis=1)[:, ::-1]
    evidence, needed = betting_evidence(payoffs(d, 0.4 / 0.6), delta=DELTA)
    with pytest.raises(AssertionError):
        assert_rate_at_most(int(np.count_nonzero(evidence >= needed)), 1_000, DELTA)


def test_half_the_tests_pass_at_a_third_of_a_standard_error_more_than_the_normal_test() -> None:
    """At 1.4 standard errors above the bound, where a normal test at delta 0.1 passes in 0.55, at
    least half pass (false alarm 1e-6); fixed bets of sqrt(2 log(1/delta) / (n v)) need 1.8."""
    n, m0 = 10_000, 0.9
    mean = m0 + 1.4 * math.sqrt(m0 * (1 - m0) / n)
    d = coins(mean, m0, runs=2_000, n=n, seed=7)
    evidence, needed = betting_evidence(payoffs(d, 1 / 9), delta=DELTA)
    assert np.mean(evidence >= needed) >= 0.5 - 4.8 * 0.5 / math.sqrt(2_000)


def exact_capital(d: Floats, bets: list[float]) -> float:
    """The log of prod(1 + bet d), report by report, after the last block."""
    blocks = pairwise(block_ends(len(d)).tolist())
    return float(
        sum(np.log1p(bet * d[a:b]).sum() for (a, b), bet in zip(blocks, bets, strict=True))
    )


@pytest.mark.parametrize(("n", "high"), [(30, 0.1), (200, 1.0), (3_000, 5.0)])
def test_sums_of_powers_never_overstate_the_capital(n: int, high: float) -> None:
    """What a block is said to earn is at most what its bets earn, and close to it."""
    d = np.random.default_rng(n).uniform(-1, high, n)
    ends = block_ends(n)
    for bet in (1e-3, 0.05, 0.3, betting.MOST_BET):
        capital = betting.Capital(np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1))
        for block in range(len(ends) - 1):
            sums = payoffs(d[None], high).sums[:, :, block]
            capital.earn(np.array([bet]), sums, int(ends[block + 1] - ends[block]))
        exact = exact_capital(d, [bet] * (len(ends) - 1))
        assert capital.log[0] <= exact + 1e-9
        if bet * max(1.0, high) < 0.1:
            assert capital.log[0] >= exact - 1e-3 * n * bet**2


def test_bets_never_look_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changing a report changes no bet up to and including its own block's, and changes later
    ones."""
    made: list[float] = []
    earn = betting.Capital.earn

    def recorded(self: betting.Capital, bets: Floats, sums: Floats, size: int) -> None:
        made.append(float(bets[0]))
        earn(self, bets, sums, size)

    monkeypatch.setattr(betting.Capital, "earn", recorded)
    d = coins(0.6, 0.6, runs=1, n=300, seed=2)
    changed = d.copy()
    changed[0, 120] = 0.4 / 0.6 if changed[0, 120] < 0 else -1.0
    for values in (d, changed):
        betting_evidence(payoffs(values, 0.4 / 0.6), delta=DELTA)
    bets, bets_changed = made[: len(made) // 2], made[len(made) // 2 :]
    own = int(np.searchsorted(block_ends(300), 120, side="right"))
    assert bets[:own] == bets_changed[:own]
    assert bets[own] != bets_changed[own]


def test_blocks_are_fixed_by_n_alone() -> None:
    """Blocks start at 0, end at n, ascend, and are at most 128."""
    for n in (0, 1, 2, 127, 1_000, 10**6):
        ends = block_ends(n)
        assert (ends[0], ends[-1]) == (0, n)
        assert (np.diff(ends) > 0).all()
        assert len(ends) <= betting.BLOCKS + 1


def rejections_with_liars(max_corrupt: int) -> int:
    """Of 1,000 runs at the bound, how many reject when the first 30 reports that are zero are
    turned into ones."""
    d = coins(0.6, 0.6, runs=1_000, n=400, seed=3)
    for row in d:
        row[np.flatnonzero(row < 0)[:30]] = 0.4 / 0.6
    evidence, needed = betting_evidence(payoffs(d, 0.4 / 0.6), delta=DELTA, max_corrupt=max_corrupt)
    return int(np.count_nonzero(evidence >= needed))


def test_liars_chosen_by_their_report_gain_nothing() -> None:
    """Thirty lies, all where they help most, stay within delta when 30 are allowed for, and are
    noticed when none is."""
    assert_rate_at_most(rejections_with_liars(30), 1_000, DELTA)
    with pytest.raises(AssertionError):
        assert_rate_at_most(rejections_with_liars(0), 1_000, DELTA)
