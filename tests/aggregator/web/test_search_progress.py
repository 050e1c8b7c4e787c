import json

import numpy as np
import pytest
from scipy.stats import binom

from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.aggregator.storage.stored_campaign import Campaign, Round, Settings
from confide.aggregator.web.drawing import search_picture
from confide.aggregator.web.search_progress import DOUBT, Bracket, Point, bracket, points
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.parts import BitTally
from confide.protocol.plan import Plan, digest, query_digest, sign_plan, write_query
from tests.support.owners.owners import KEY
from tests.support.servers.servers import plan_now

TRIALS = 60


def run(plan: Plan, rng: np.random.Generator) -> tuple[Campaign, list[Round], list[bytes]]:
    """A bits campaign on uniform scores, so that coverage at q is q: its rounds as they are
    stored, and their queries."""
    campaign = Campaign("id", sign_plan(plan, KEY), Settings().to_json(), "open", None)
    procedure, tally, rounds = plan_procedure(plan, draw_afresh), None, list[Round]()
    queries = list[bytes]()
    while True:
        try:
            query = procedure.send(tally)
        except StopIteration:
            return campaign, rounds, queries
        assert isinstance(query, BitQuery)
        count, hit, spill = (
            len(query.thresholds),
            float(query.channel.hit),
            float(query.channel.spill),
        )
        answers = rng.multinomial(
            round(plan.expected_records * (query.stop - query.start)), np.full(count, 1 / count)
        )
        ones = rng.binomial(answers, spill + (hit - spill) * np.array(query.thresholds))
        tally = BitTally(tuple(answers.tolist()), tuple(ones.tolist()))
        asked = write_query(query, plan=digest(plan.to_bytes()), round_=len(rounds))
        kept = json.dumps({"answers": tally.answers, "ones": tally.ones})
        queries.append(asked)
        rounds.append(Round(len(rounds), query_digest(asked), 0.0, 1.0, 1.0, "enough", kept))


@pytest.mark.parametrize(
    ("variant", "n", "epsilon"),
    [("one-shot", 2_000, 1.0), ("one-shot", 6_000, 4.0), ("certified", 2_000, 4.0)],
)
def test_a_bracket_holds_the_crossing_as_often_as_it_says(
    variant: str, n: int, epsilon: float
) -> None:
    """Of 60 searches whose truth is known, no more miss it than chance allows at `DOUBT`; false
    alarm one in a million."""
    plan = plan_now(variant=variant, expected_records=n, epsilon=epsilon, alpha=0.1)
    rng, missed = np.random.default_rng(1), 0
    for _ in range(TRIALS):
        found = bracket(points(*run(plan, rng)))
        missed += not found.low <= 1 - plan.alpha <= found.high
    assert missed <= binom.isf(1e-6, TRIALS, DOUBT)


def test_points_are_unbiased_and_never_sure_of_nothing() -> None:
    """On average the share at a threshold is the true one; errors are above 0; what was not counted
    says nothing."""
    plan, rng = (
        plan_now(variant="one-shot", expected_records=20_000, epsilon=1.0),
        np.random.default_rng(2),
    )
    runs = [points(*run(plan, rng)) for _ in range(20)]
    for column in zip(*runs, strict=True):
        found = [point.coverage for point in column if point.coverage is not None]
        errors = [point.error for point in column if point.error is not None]
        assert min(errors) > 0
        # Six standard errors, 200 thresholds: a false alarm in four million.
        assert abs(np.mean(found) - column[0].threshold) < 6 * np.mean(errors) / np.sqrt(len(found))
    campaign, rounds, queries = run(plan, rng)
    open_round = Round(0, rounds[0].digest, 0.0, 1.0, None, None, None)
    shown = points(campaign, [open_round], queries[:1])
    assert {(point.coverage, point.answers) for point in shown} == {(None, 0)}


def test_the_bracket_lies_between_what_is_sure() -> None:
    """The highest threshold surely below under the lowest surely above; what is doubtful moves no
    end."""

    def point(q: float, above: float, below: float) -> Point:
        return Point(0, q, 10, 0.5 if below < above else 0.95, 0.1, above, below)

    asked = [
        point(0.2, 1.0, 0.001),
        point(0.4, 0.9, 0.1),
        point(0.6, 0.1, 0.9),
        point(0.8, 0.001, 1.0),
        point(0.9, 0.0, 1.0),
    ]
    assert bracket(asked) == Bracket(0.2, 0.8)
    assert bracket([*asked, point(0.5, 1.0, 1e-9)]) == Bracket(0.5, 0.8)
    # Among many, what one in a thousand would show is no longer sure.
    many = [point(0.3 + i / 1000, 0.5, 0.5) for i in range(100)]
    assert bracket([*asked, *many]) == Bracket(0.0, 0.9)
    # What one round has found, a later one does not lose.
    later = [Point(1, 0.3 + i / 1000, 10, 0.9, 0.1, 0.5, 0.5) for i in range(100)]
    assert bracket([*asked, *later]) == Bracket(0.2, 0.8)
    assert bracket([Point(0, 0.5, 0)]) == Bracket(0.0, 1.0)
    picture = search_picture([*asked, Point(1, 0.7, 0)], level=0.9, threshold=0.8)
    assert [picture.count(f'"{side}"') for side in ("below", "above", "asked")] == [2, 3, 1]
    assert search_picture([], level=0.9, threshold=None) == ""
