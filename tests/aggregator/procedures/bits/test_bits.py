import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.aggregator.procedures.bits import procedure as bits
from confide.aggregator.procedures.bits.one_shot import one_shot
from confide.protocol.certificate import LocalCertificate
from confide.protocol.channels.bit import Bit
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.bits import BitProcedure, BitQuery
from confide.protocol.methods.parts import BitTally
from confide.simulation.driver import BitUsers, drive
from tests.support.truth.known import assert_rate_at_most

Procedure = Callable[..., BitProcedure]

ALPHA = DELTA = 0.1


def uniform_scores(rng: np.random.Generator, n: int) -> NDArray[Any]:
    """F(q) = q."""
    return rng.random(n)


CERTIFIED: dict[str, Callable[..., BitProcedure]] = {
    "certified": bits.certified,
    "one-shot": one_shot,
}


def campaign(
    procedure: Procedure, scores: NDArray[Any], seed: int, epsilon: float, **more: Any
) -> LocalCertificate:
    channel = Bit(epsilon=epsilon)
    given = {"channel": channel, "alpha": ALPHA, "delta": DELTA, "n": len(scores), **more}
    return drive(procedure(**given), BitUsers(scores, SeededEntropy("bits", seed)))


def test_a_planted_point_estimate_is_caught() -> None:
    """Taking the threshold at which the estimate itself reaches the target fails half of the
    time."""
    rng = np.random.default_rng(4)
    channel = Bit(epsilon=1.0)
    failures = 0
    for i in range(400):
        scores = uniform_scores(rng, 2_000)
        ladder = np.linspace(0.8, 1.0, 21)
        query = BitQuery(channel, 0.0, 1.0, tuple(ladder.tolist()))
        tally = BitUsers(scores, SeededEntropy(i))(query)
        estimate = (np.array(tally.ones) / np.array(tally.answers) - float(channel.spill)) / float(
            channel.hit - channel.spill
        )
        failures += bool(ladder[np.argmax(estimate >= 1 - ALPHA)] < 1 - ALPHA)
    with pytest.raises(AssertionError):
        assert_rate_at_most(failures, 400, DELTA)


@pytest.mark.parametrize("name", list(CERTIFIED))
def test_too_few_reports_give_the_trivial_threshold_and_a_reason(name: str) -> None:
    """Five users cannot certify 90 %: nobody is asked, the threshold is 1, and the certificate says
    why."""
    asked: list[BitQuery] = []
    users = BitUsers(np.full(5, 0.1), SeededEntropy(1))

    def answer(query: BitQuery) -> BitTally:
        asked.append(query)
        return users(query)

    certificate = drive(
        CERTIFIED[name](channel=Bit(epsilon=8.0), alpha=ALPHA, delta=DELTA, n=5), answer
    )
    assert certificate.trivial
    assert certificate.reason is not None
    assert certificate.reason.startswith("too few reports")
    assert asked == []


def test_certificates_name_unit_adjacency_and_randomness() -> None:
    """A simulated campaign is stamped as such; unit and adjacency are stated."""
    certificate = campaign(bits.certified, uniform_scores(np.random.default_rng(1), 2_000), 1, 4.0)
    assert (certificate.unit, certificate.adjacency) == ("record", "replace-one")
    assert certificate.randomness == "seeded (simulation only)"


@pytest.mark.parametrize("epsilon", [30.0, 38.0, 40.0])
def test_nearly_noiseless_channels_serve(epsilon: float) -> None:
    """Where flips are too rare for a double to hold, thresholds are still found."""
    scores = 0.01 * uniform_scores(np.random.default_rng(1), 3_000)
    assert campaign(bits.certified, scores, 1, epsilon).threshold < 0.02


def test_published_on_five_users_is_trivial_with_a_reason() -> None:
    """The published search with more rounds than users ends at 1 and says so."""
    certificate = campaign(bits.published, np.full(5, 0.1), 1, 8.0)
    assert certificate.trivial
    assert certificate.reason is not None


def slices(procedure: BitProcedure, users: BitUsers) -> list[BitQuery]:
    asked = []

    def answer(query: BitQuery) -> BitTally:
        asked.append(query)
        return users(query)

    drive(procedure, answer)
    return asked


@pytest.mark.parametrize("name", ["certified", "one-shot", "published"])
def test_every_record_is_asked_at_most_once_in_at_most_eight_rounds(name: str) -> None:
    """The slices of a campaign never overlap; certified takes eight rounds, one-shot one."""
    procedure = {"published": bits.published, **CERTIFIED}[name]
    users = BitUsers(uniform_scores(np.random.default_rng(1), 10_000), SeededEntropy(1))
    asked = slices(procedure(channel=Bit(epsilon=1.0), alpha=ALPHA, delta=DELTA, n=10_000), users)
    edges = [(query.start, query.stop) for query in asked]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(edges))
    assert len(asked) <= {"certified": 8, "one-shot": 1, "published": 10}[name]


def test_missing_answers_are_survived() -> None:
    """With four answers in five lost, the certificate rests on those that arrived."""
    scores = uniform_scores(np.random.default_rng(2), 20_000)
    users = BitUsers(scores[:4_000], SeededEntropy(1))
    certificate = drive(
        bits.certified(channel=Bit(epsilon=4.0), alpha=ALPHA, delta=DELTA, n=20_000), users
    )
    assert certificate.n <= 4_000
    assert not certificate.trivial


def test_a_round_that_nobody_answers_is_survived() -> None:
    """Empty tallies end in the trivial threshold, not in an error."""
    for procedure in (bits.certified, one_shot, bits.published):
        made = procedure(channel=Bit(epsilon=1.0), alpha=ALPHA, delta=DELTA, n=1_000)

        def nobody(query: BitQuery) -> BitTally:
            none = (0,) * len(query.thresholds)
            return BitTally(none, none)

        certificate = drive(made, nobody)
        assert certificate.trivial
        assert certificate.n == 0


@pytest.mark.parametrize("star", [False, True])
def test_published_follows_the_paper(star: bool) -> None:
    """On noiseless-like channels S ends within Delta of the target, S* above it, with the stated
    levels."""
    certificate = campaign(
        bits.published, uniform_scores(np.random.default_rng(5), 400_000), 1, 8.0, star=star
    )
    assert certificate.slack is not None
    low = 1 - ALPHA + (certificate.slack if star else 0)
    assert low - certificate.slack <= certificate.threshold <= low + 2 * certificate.slack
    assert certificate.level == pytest.approx(1 - ALPHA - (0 if star else certificate.slack))


def test_lies_widen_every_variant() -> None:
    """A threshold certified with possible lies is not below the one without."""
    scores = uniform_scores(np.random.default_rng(6), 40_000)
    for procedure in (bits.certified, one_shot, bits.published):
        honest, wary = (
            campaign(procedure, scores, 1, 4.0, max_corrupt=lies).threshold for lies in (0, 40)
        )
        assert wary >= honest
        assert wary < 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 1.0}, "alpha"),
        ({"delta": 2.0}, "delta"),
        ({"n": 0}, "n is"),
    ],
)
def test_impossible_campaigns_are_refused(change: dict[str, Any], says: str) -> None:
    """alpha and delta outside (0, 1), no records, negative lies."""
    given = {
        "channel": Bit(epsilon=1.0),
        "alpha": ALPHA,
        "delta": DELTA,
        "n": 100,
        "max_corrupt": 0,
        **change,
    }
    for procedure in (bits.certified, one_shot, bits.published):
        with pytest.raises(BadInput, match=says):
            next(procedure(**given))
