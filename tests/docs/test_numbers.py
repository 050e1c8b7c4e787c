"""Single numbers in the sentences of the documents are what the code computes.

Tables come out of the command that stands beside them.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, truncnorm

from confide.aggregator.campaigns.planning.plans import make_plan
from confide.aggregator.procedures.full_data.levels import Transfer, dpcp_level
from confide.aggregator.quantiles.base import Mechanism
from confide.aggregator.quantiles.histogram import conformal_rank
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.aggregator.quantiles.registry import MECHANISMS, automatic_bins
from confide.protocol.privacy.amplification import shuffled_epsilon
from confide.protocol.privacy.budgets import Budget
from confide.protocol.privacy.losses import SampledGaussian
from confide.protocol.privacy.profiles import PLD, RDP, Profile
from confide.protocol.privacy.renyi import training_epsilon, training_noise
from confide.protocol.simulated.settings import ALWAYS
from confide.protocol.wire.service import LARGEST_PIECE
from confide.protocol.wire.splitting import single_bytes
from confide.simulation.evaluate.full_data.pipelines import PIPELINES
from confide.simulation.reproduce.full_data import cells
from tests.support.repository.pages_of_docs import says

SETTINGS = {
    "score": "hps",
    "alpha": 0.1,
    "epsilon": 1.0,
    "failure-probability": 0.1,
    "max-corrupt": 0,
    "records": 20_000,
    "minimum-reports": 100,
    "minimum-owners": 1,
    "model": "00" * 32,
}


def test_the_shuffle_bound_is_the_computed_one() -> None:
    """The example of local-methods.md and of shuffler.md: the rate that is no bound, the bound."""
    bound = shuffled_epsilon(local_epsilon=4.0, n=23_640, delta=1e-6)
    rate = 4 / math.sqrt(23_640)
    assert says("local-methods.md", f"it says {rate:.3f} where the analysis gives {bound:.3f}")
    assert says("shuffler.md", f"epsilon {bound:.3f} at delta 1e-6 instead of 3.99999")
    assert says("shuffler.md", f"| 3.99999 | {bound:.4f} |")
    whole = shuffled_epsilon(local_epsilon=4.0, n=100_000, delta=1e-6)
    assert says("shuffler.md", f"| 3.99999 | {whole:.4f} |")


def test_what_forty_campaigns_show_is_what_the_limits_say() -> None:
    """Fifteen failures in forty are the fewest whose lower limit is above delta."""

    def low(failures: int, campaigns: int) -> float:
        return float(beta.ppf(1e-5, failures, campaigns + 1 - failures))

    least = next(failures for failures in range(1, 41) if low(failures, 40) > 0.1)
    assert says("local-methods.md", f"A cell is caught by {least} failures in 40")
    assert says("local-methods.md", f"is {low(23, 200):.3f}, that of 23 failures in 200")


def test_the_level_of_the_whole_profile_is_the_computed_one() -> None:
    """The example of full-data.md: DP-SGD of 1,000 steps at rate 0.01, 10,000 records."""
    training = Profile().then(SampledGaussian(1.415, 0.01, 1_000))
    assert training.epsilon(1e-5) == pytest.approx(1.0, abs=1e-3)
    whole = Transfer.of(training, alpha=0.1, beta=1e-3).level(10_000)
    point = dpcp_level(alpha=0.1, epsilon=1.0, delta=1e-5)
    assert says(
        "full-data.md",
        f"in-sample level {whole:.3f} where one point of the profile leaves {point:.3f}",
    )


def test_the_costs_and_the_level_of_a_federated_training_are_the_computed_ones() -> None:
    """Of 20 steps that cost epsilon 4 when a record is replaced."""
    steps: dict[str, Any] = {"sampling_rate": 0.5, "steps": 20, "delta": 1e-6}
    noise = training_noise(epsilon=4.0, **steps)
    added = training_epsilon(noise_multiplier=noise, adjacency="add-remove", **steps)
    profile = Profile().then(SampledGaussian(noise, 0.5, 20))
    level = Transfer.of(profile, alpha=0.1, beta=0.002).miss
    assert says("full-data.md", f"(delta 1e-6) when a record is replaced cost {added:.2f} when one")
    assert says("full-data.md", f"beta = 0.002 the level of in-sample scores is {level:.3f}.")


def test_the_noise_of_the_search_is_the_computed_one() -> None:
    """full-data.md compares two accountants at n = 10,000 and epsilon 0.5."""
    cell = next(iter(cells.scp_cells()))
    learner = cell.make(np.random.default_rng(0), 64)

    def sigma(accountant: str) -> float:
        terms = replace(cell.terms, budget=Budget(0.5, 1e-5, accountant), bins=cells.SEARCH_BINS)
        quantile: Any = PIPELINES["scp-f"](terms, learner).quantile
        return math.sqrt(quantile.variance)

    assert (cell.terms.n, cell.terms.budget.epsilon) == (10_000, 0.5)
    assert says("full-data.md", f"its sigma is {sigma(PLD):.1f} where RDP needs {sigma(RDP):.1f}")


def test_the_floor_of_the_memoriser_is_the_computed_one() -> None:
    """full-data.md names the floor of DP-SCP-F at epsilon 2."""
    cell = next(cell for cell in cells.memory_cells() if cell.terms.budget.epsilon == 2.0)
    (pipeline,) = replace(cell, methods=("scp-f",)).pipelines()
    assert says("full-data.md", f"(its floor says {pipeline.promise.black_box_floor:.3f})")


def test_the_location_example_has_the_computed_margin_and_oracle() -> None:
    """full-data.md: the ranks that beta takes at epsilon 0.1, and the best length."""
    cell = next(cell for cell in cells.dpcp_cells() if cell.terms.n == 10_000)
    (pipeline,) = replace(cell, methods=("certified",)).pipelines()
    assert isinstance(pipeline.quantile, RankExponential)
    assert says("full-data.md", f"takes {pipeline.quantile.margin} ranks there")
    length = 2 * truncnorm(-3, 3, scale=5).ppf(0.95)
    assert says("full-data.md", f"The oracle's length at alpha = 0.1 is {length:.1f}")


def test_certified_inflations_are_the_computed_ones() -> None:
    """central-mechanisms.md compares two mechanisms at epsilon 1 and n = 5,000."""
    n, rank = 5_000, conformal_rank(n=5_000, level=0.9)

    def ranks(name: str) -> int | None:
        def make(bins: int) -> Mechanism:
            settings: dict[str, Any] = {"bins": bins, "epsilon": 1.0, "beta": 1e-3}
            return MECHANISMS[name](**settings)

        return make(automatic_bins(make, n=n, rank=rank)).inflation(n=n, rank=rank)

    low, high = ranks("rank-exponential"), ranks("above-threshold")
    assert says("central-mechanisms.md", f"(epsilon = 1, n = 5,000: {low} against {high} ranks)")


def test_the_bytes_of_a_report_are_those_of_the_wire_format() -> None:
    """operator.md: an answer of one report, over the numbers of labels that plans may have."""

    def bytes_of(campaign: str, **settings: object) -> int:
        plan = make_plan(campaign, SETTINGS | settings, title="x", valid=ALWAYS)
        single = single_bytes(plan)
        assert single is not None
        return single

    bits = bytes_of("bits:certified", labels=26)
    rest = [
        bytes_of("labels:certified", labels=labels, channel="k-rr") - 4 * labels
        for labels in (2, 10, 30, 100, 1_000, 10_000, 32_768)
    ]
    assert says(
        "operator.md",
        f"({bits} bytes for bits, {min(rest)} to {max(rest)} and 4 a label for labels",
    )


def test_the_largest_message_and_the_tail_of_noise_are_the_computed_ones() -> None:
    """operator.md: the bytes of a message, and how rarely noise leaves its bounds."""
    assert says("operator.md", f"A message has {LARGEST_PIECE:,} bytes at most")
    # A discrete Gaussian has no heavier tails than 2 exp(-t^2/2), t in standard deviations
    # (Canonne, Kamath & Steinke 2020).
    assert 2e-14 < 2 * math.exp(-(8**2) / 2) < 3e-14
    assert says("operator.md", "draws with probability below 3e-14")
