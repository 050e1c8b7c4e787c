"""Central calibration: releases, noise that owners add, and cards."""

import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.campaigns.releases import Kept
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.procedures.counts.central import noise_offset, owner_noised, trusted
from confide.aggregator.quantiles.base import Mechanism, Release
from confide.aggregator.quantiles.histogram import Histogram, certified_rank, histogram
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.client.policy import Policy
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.verify.counts.recompute import inflation
from confide.protocol.certificate import CentralCertificate
from confide.protocol.errors import BadInput
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.grids import uniform_grid
from confide.protocol.exact.sampling import Entropy, SeededEntropy, os_entropy
from confide.protocol.methods.counts.queries import (
    CountProcedure,
    CountQuery,
    CountTally,
    HistogramTally,
)
from confide.protocol.plan import Plan
from tests.support.cards.central import BINS, CENTRAL, NOISED, TRUSTED, drive
from tests.support.owners.owners import (
    KEY,
    NOW,
    asking,
    central,
    changed,
    owner,
    records,
    scored,
    signed,
)

OWNERS = 4


def owners(
    tmp_path: Path, policy: Policy = CENTRAL, n: int = 1_500, entropy: Entropy | None = None
) -> list[Any]:
    return [
        owner(tmp_path / str(seed), seed=seed, n=n, policy=policy, entropy=entropy)
        for seed in range(OWNERS)
    ]


@pytest.mark.parametrize(
    "plan", [TRUSTED, changed(TRUSTED, mechanism="laplace-counts", bins=16), NOISED]
)
def test_a_campaign_of_counts_gives_a_threshold_and_a_card(plan: Plan, tmp_path: Path) -> None:
    """Owners count, the sum is released privately, and the card of it verifies.

    Noise is the operating system's. The top of the grid is released when noise takes away what the
    bin below it has beyond the rank and its margin: of noisy counts, the nearest to that, more than
    400 of scale 16, so with probability below 1e-11.
    """
    outcome = run_campaign(
        plan, asking(signed(plan), owners(tmp_path, n=3_000, entropy=os_entropy))
    )
    certificate = outcome.certificate
    assert isinstance(certificate, CentralCertificate)
    assert (certificate.n, certificate.owners, certificate.kind) == (
        3_000 * OWNERS,
        OWNERS,
        "marginal",
    )
    assert certificate.level == pytest.approx(0.9)
    assert 0.5 < certificate.threshold < 1
    assert certificate.epsilon is not None
    assert certificate.epsilon <= plan.epsilon
    card = campaign_card(plan, outcome, diagnostic={}, issued=NOW).sign(KEY)
    assert [finding.clause for finding in verify(card) if not finding.holds] == []
    assert card.formal["decision"] == "feasible"
    assert card.formal["searched"][0]["inflation_ranks"] == certificate.inflation


def test_exact_counts_add_up_to_the_histogram_of_all_records(tmp_path: Path) -> None:
    """What a trusted aggregator sums is the histogram of everybody's scores."""
    seen: list[Histogram] = []

    def draw(mechanism: Mechanism, counts: Histogram, rank: int) -> Release:
        seen.append(counts)
        return mechanism.release(counts, rank, SeededEntropy(1))

    run_campaign(TRUSTED, asking(signed(TRUSTED), owners(tmp_path)), draw=draw)
    every = [records(1_500, seed) for seed in range(OWNERS)]
    scores = np.concatenate([1 - scored(one)[np.arange(len(one)), one.truth] for one in every])
    assert np.array_equal(seen[0].counts, histogram(scores, uniform_grid(BINS)).counts)


def test_a_release_is_drawn_once(tmp_path: Path) -> None:
    """A retry with the same plan gets the release that is on disk; another mechanism's file is
    refused."""
    mechanism = RankExponential(bins=8, beta=0.1, epsilon=0.1)
    counts = Histogram(np.full(8, 50), uniform_grid(8))
    draws = [
        Kept(tmp_path / "release.json", SeededEntropy(seed))(mechanism, counts, 300)
        for seed in range(20)
    ]
    assert set(draws) == {draws[0]}
    free = {mechanism.release(counts, 300, SeededEntropy(seed)).bin for seed in range(20)}
    assert len(free) > 1
    assert [path.name for path in tmp_path.iterdir()] == ["release.json"]
    (tmp_path / "release.json").write_text("{}")
    with pytest.raises(BadInput, match="must not be drawn again"):
        Kept(tmp_path / "release.json", SeededEntropy(1))(mechanism, counts, 300)


def searched(plan: Plan) -> CountProcedure:
    return owner_noised(central(plan), alpha=plan.alpha)


def noisy(
    scores: list[np.ndarray[Any, Any]],
    variance: int,
    entropy: Any,
    missing: Any = lambda step, i: False,
) -> Any:
    """Owners as a function of the query, in process."""
    step = -1

    def answer(query: CountQuery) -> CountTally:
        nonlocal step
        step += 1
        noise = discrete_gaussian(Fraction(variance), len(scores), entropy)
        return CountTally(
            {
                bytes([i]) * 16: (len(own), int((own <= query.threshold).sum() + noise[i]))
                for i, own in enumerate(scores)
                if not missing(step, i)
            }
        )

    return answer


def test_the_search_misses_the_rank_no_more_often_than_beta() -> None:
    """Of 300 searches no more land below the rank's score than a rate of beta gives except with
    probability 1e-6; with ten times the noise that the offset reckons with (a planted bug) far more
    do."""
    rng, entropy = np.random.default_rng(5), SeededEntropy(5)
    plan = changed(NOISED, bins=64, beta=0.09, noise_variance=400)
    scores = [rng.random(400) for _ in range(OWNERS)]
    rank = certified_rank(n=1_600, alpha=plan.alpha, beta=central(plan).beta)
    needed = np.sort(np.concatenate(scores))[rank - 1]
    trials = 300
    low = sum(
        drive(searched(plan), noisy(scores, 400, entropy)).threshold < needed for _ in range(trials)
    )
    limit = int(binom.isf(1e-6, trials, central(plan).beta))
    assert low <= limit
    planted = sum(
        drive(searched(plan), noisy(scores, 400 * 100, entropy)).threshold < needed
        for _ in range(trials)
    )
    assert planted > limit


def test_an_owner_that_stays_away_only_raises_the_threshold() -> None:
    """Missing answers count as nothing: the rank stays that of the first round, and the inflation
    bound is withdrawn."""
    rng = np.random.default_rng(6)
    scores = [rng.random(3_000) for _ in range(OWNERS)]
    plan = changed(NOISED, noise_variance=300)
    everybody = drive(searched(plan), noisy(scores, 1, SeededEntropy(1)))
    some = drive(
        searched(plan),
        noisy(scores, 1, SeededEntropy(1), missing=lambda step, i: step > 0 and i == 0),
    )
    assert some.threshold > everybody.threshold
    assert (some.n, some.rank, some.inflation) == (12_000, everybody.rank, None)
    assert everybody.inflation is not None
    late = drive(
        searched(plan),
        noisy(scores, 1, SeededEntropy(1), missing=lambda step, i: step == 0 and i == 0),
    )
    assert (late.n, late.owners) == (9_000, 3)
    nobody = drive(
        searched(plan),
        noisy(scores, 1, SeededEntropy(1), missing=lambda step, i: True),
    )
    assert nobody.threshold == 1
    assert nobody.reason == "no records were counted"


def test_too_few_records_end_in_the_top_of_the_grid() -> None:
    """A rank beyond the records is infeasible, and says so; nothing is drawn for it."""
    few = HistogramTally(np.array([3] + [0] * (BINS - 1)), 1)

    def never(*_: Any) -> Release:
        raise AssertionError("nothing may be drawn")

    certificate = drive(trusted(central(TRUSTED), alpha=TRUSTED.alpha, draw=never), lambda _: few)
    assert certificate.threshold == 1
    assert "infeasible" in str(certificate.reason)


@pytest.mark.parametrize("plan", [TRUSTED, NOISED])
def test_an_infeasible_campaign_has_a_card_that_verifies(plan: Plan, tmp_path: Path) -> None:
    """With eight records there is no rank for this target: the top of the grid is released, and the
    card says why."""
    plan = changed(plan, minimum_reports=0)
    few = owner(tmp_path, n=8, policy=replace(CENTRAL, minimum_group=1), entropy=os_entropy)
    outcome = run_campaign(plan, asking(signed(plan), [few]))
    card = campaign_card(plan, outcome, diagnostic={}, issued=NOW).sign(KEY)
    assert card.formal["decision"] == "infeasible"
    assert card.formal["failed"][0] == "rank"
    assert [finding.clause for finding in verify(card) if not finding.holds] == []


def test_the_tail_of_summed_noise_is_the_true_one() -> None:
    """For one owner the offset is exact by the definition of the law; for many it is within a rank
    of the normal one."""
    x = np.arange(-400, 401)
    law = np.exp(-(x**2) / (2 * 90.0))
    law /= law.sum()
    for beta in (0.2, 1e-2, 1e-4, 1e-6):
        offset = noise_offset(90, 1, beta)
        assert law[x > offset].sum() <= beta < law[x > offset - 1].sum()
    many = np.array(
        [discrete_gaussian(Fraction(90), 20, SeededEntropy(i)).sum() for i in range(400)]
    )
    assert abs(many.std() / np.sqrt(20 * 90) - 1) < 0.2
    assert noise_offset(90, 20, 1e-3) == pytest.approx(3.0902 * np.sqrt(20 * 90), abs=1.5)
    assert noise_offset(90, 20, 1e-3) < np.sqrt(2 * 20 * 90 * np.log(1e3))


def test_wide_noise_takes_no_table() -> None:
    """The most noise and the most owners of a card: a table of their law had 240,000,000 entries.
    Aggregator and verifier bound it alike, and within a second of processor time."""
    entry = {
        "mechanism": "gaussian-search",
        "noised_by": "owners",
        "bins": 1024,
        "owners": 100_000,
        "noise_variance": 10**9,
        "epsilon_calibration": 1.0,
        "delta_calibration": 1e-6,
    }
    before = time.process_time()
    offset = noise_offset(10**9, 100_000, 1e-3 / 10)
    assert inflation(entry, beta=1e-3, adjacency="replace-one", rank=1) == 2 * offset
    assert time.process_time() - before < 1
