"""Certificates for every owner and for each, on owners whose coverage is known.

Four owners of eight are harder: their scores are square roots of uniform ones, so that coverage at
q is q^2 there and q elsewhere.
"""

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from confide.aggregator.procedures.bits import procedure as bits
from confide.aggregator.procedures.labels import procedure as labels
from confide.aggregator.procedures.ladder import public_ladder
from confide.protocol.certificate import LocalCertificate
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.randomized_response import KaryRR
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.owner_terms import usual_floor
from confide.simulation.arrays.calibrate import calibrate
from confide.simulation.driver import BitUsers, LabelUsers, drive

ALPHA = DELTA = 0.1
OWNERS, HARDER, N, CAMPAIGNS = 8, 4, 8_000, 40
BIT, K = Bit(epsilon=4.0), 4
LADDER = public_ladder(60)
# No more failures than these, but for once in 10^6 test runs.
MOST = int(binom.isf(1e-6, CAMPAIGNS, DELTA))


def population(seed: Any, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    owners = rng.integers(0, OWNERS, n)
    u = rng.random(n)
    return np.where(owners < HARDER, np.sqrt(u), u), owners


def campaign(method: str, variant: str, seed: int, **more: Any) -> LocalCertificate:
    scores, owners = population([seed, 7])
    entropy = SeededEntropy(method, variant, seed)
    asked: dict[str, Any] = {"variant": variant, "alpha": ALPHA, "delta": DELTA, **more}
    if method == "bits":
        made = bits.procedure(n=N, channel=BIT, **asked)
        return drive(made, BitUsers(scores, entropy, owners))
    # A set of labels in an order that is independent of the label: label 0 is the true one.
    every = np.column_stack([scores, *(1 + 0 * scores for _ in range(K - 1))])
    truth = np.zeros(N, dtype=np.int64)
    made_ = labels.procedure(channel=KaryRR(k=K, epsilon=4.0), ladder=LADDER, **asked)
    return drive(made_, LabelUsers(every, truth, entropy, owners))


def coverage(q: float, *, hard: bool) -> float:
    return q * q if hard else q


@pytest.mark.parametrize("method", ["bits", "labels"])
def test_the_pooled_threshold_misses_where_the_one_for_every_owner_covers(method: str) -> None:
    """The pooled certificate, true of the mixture, is below 1 - alpha at the harder owners in
    nearly every campaign. The one for every owner is so in at most a share delta of them."""
    pooled = [campaign(method, "certified", i).threshold for i in range(12)]
    assert sum(coverage(q, hard=True) < 1 - ALPHA for q in pooled) >= 11
    every = [campaign(method, "for-every-owner", i).threshold for i in range(CAMPAIGNS)]
    assert sum(coverage(q, hard=True) < 1 - ALPHA for q in every) <= MOST
    # It is not true for being trivial.
    assert np.median(every) < 0.995


@pytest.mark.parametrize("method", ["bits", "labels"])
@pytest.mark.parametrize("joint", [False, True])
def test_each_owner_is_covered_as_it_is_promised(method: str, joint: bool) -> None:
    """At each owner at most a share delta of campaigns fail; with joint, at any of them."""
    failed, thresholds = [], []
    for i in range(10):
        made = campaign(method, "per-owner", i, joint=joint)
        each = np.array([one.threshold for one in made.strata])
        thresholds.append(each)
        failed.append([coverage(q, hard=o < HARDER) < 1 - ALPHA for o, q in enumerate(each)])
    counts = np.array(failed)
    # Owners have records of their own, so that all their tests are independent.
    count = np.asarray(counts.any(axis=1) if joint else counts.reshape(-1))
    assert count.sum() <= int(binom.isf(1e-6, len(count), DELTA))
    # Harder owners have higher thresholds, and easy ones are not held up by them.
    means = np.mean(thresholds, axis=0)
    assert means[:HARDER].min() > means[HARDER:].max() - 0.02
    assert (np.array(thresholds) < 1).mean() > 0.5


@pytest.mark.parametrize("method", ["bits", "labels"])
def test_small_owners_are_left_out_by_their_size_alone(method: str) -> None:
    """An owner below the floor is named with the reason, and does not make the rest trivial."""
    scores, owners = population(3)
    # Owner 0 keeps a few records, whose scores are the worst.
    few = (owners == 0) & (np.cumsum(owners == 0) <= 20)
    scores, owners = scores[few | (owners > 0)], owners[few | (owners > 0)]
    order = np.random.default_rng(1).permutation(len(scores))
    scores, owners = np.where(owners == 0, 1.0, scores)[order], owners[order]
    asked: dict[str, Any] = {"variant": "for-every-owner", "alpha": ALPHA, "delta": DELTA}
    if method == "bits":
        made = bits.procedure(n=len(scores), channel=BIT, part_floor=200, **asked)
        certificate = drive(made, BitUsers(scores, SeededEntropy(2), owners))
    else:
        every = np.column_stack([scores, *(1 + 0 * scores for _ in range(K - 1))])
        truth = np.zeros(len(scores), dtype=np.int64)
        channel = KaryRR(k=K, epsilon=4.0)
        made_ = labels.procedure(channel=channel, ladder=LADDER, part_floor=200, **asked)
        certificate = drive(made_, LabelUsers(every, truth, SeededEntropy(2), owners))
    left_out = [one for one in certificate.strata if not one.covered]
    assert [one.name for one in left_out] == ["1"]
    assert "the plan asks for 200 of an owner" in str(left_out[0].reason)
    assert certificate.threshold < 1


def test_an_owner_that_leaves_is_named_and_nothing_is_claimed_of_it() -> None:
    """It answers the search and the first stage, and no more."""
    scores, owners = population(5)
    users = BitUsers(scores, SeededEntropy(4), owners)

    def answer(query: Any) -> Any:
        if query.start < 0.29:
            return users(query)
        staying = np.where(owners == 2, -1, owners)
        first, last = (int(np.ceil(N * edge - 0.5)) for edge in (query.start, query.stop))
        kept = np.arange(N)[first:last][staying[first:last] >= 0]
        # The rest of the slice, asked one threshold, whoever it is.
        return BitUsers(scores[kept], SeededEntropy(5), owners[kept])(
            type(query)(query.channel, 0.0, 1.0, query.thresholds)
        )

    made = bits.procedure(
        variant="for-every-owner", n=N, channel=BIT, alpha=ALPHA, delta=DELTA, part_floor=100
    )
    certificate: LocalCertificate = drive(made, answer)
    gone = certificate.strata[2]
    assert (gone.covered, gone.threshold, gone.rungs) == (False, 1.0, ())
    assert str(gone.reason).startswith("left")
    assert sum(one.covered for one in certificate.strata) == OWNERS - 1
    assert certificate.threshold < 1


def test_more_lies_or_a_joint_claim_cost_something() -> None:
    """With lies allowed for in every owner's test thresholds rise, and so they do jointly."""
    plain = campaign("labels", "per-owner", 1)
    for more in ({"max_corrupt": 20}, {"joint": True}):
        other = campaign("labels", "per-owner", 1, **more)
        pairs = zip(plain.strata, other.strata, strict=True)
        assert all(own.threshold <= one.threshold for own, one in pairs)
        assert other.threshold > plain.threshold or other.strata != plain.strata


def test_the_usual_floor_is_that_of_a_test_with_an_even_chance() -> None:
    """With so many answers at coverage half-way to 1, half of all tests pass, by exact tails."""
    m0 = float(BIT.spill) + float(BIT.hit - BIT.spill) * (1 - ALPHA)
    rate = float(BIT.spill) + float(BIT.hit - BIT.spill) * (1 - ALPHA / 2)
    floor = usual_floor(BIT.deviation(1 - ALPHA), alpha=ALPHA, delta=DELTA)
    chances = []
    for n in (floor // 2, floor, 2 * floor):
        passes = next(c for c in range(n + 2) if binom.sf(c - 1, n, m0) <= DELTA)
        chances.append(float(binom.sf(passes - 1, n, rate)))
    assert chances[0] < 0.4 < chances[1] < 0.65 < chances[2]


def test_records_in_arrays_are_calibrated_for_their_owners() -> None:
    """The public function takes the owner of every record, and its card has a part for each."""
    rng = np.random.default_rng(0)
    labels_ = rng.integers(0, 3, 6_000)
    probs = rng.dirichlet(np.ones(3), 6_000)
    probs[np.arange(6_000), labels_] += 2
    owners = rng.choice(["north", "south"], 6_000)
    asked: dict[str, Any] = {"epsilon": 4.0, "seed": 1, "owners": owners}
    made = calibrate(
        probs / 3, labels_, method="bits:for-every-owner", owner_floor=100, **asked
    ).certificate
    assert [one.name for one in made.strata] == ["1", "2"]
    assert made.threshold == max(one.threshold for one in made.strata) < 1
    with pytest.raises(BadInput, match="3 owners with 6000 truths"):
        calibrate(probs / 3, labels_, **asked | {"owners": owners[:3]})
