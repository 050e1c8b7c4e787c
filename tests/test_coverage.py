from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from aggregator.intake import Intake
from protocol.campaign import digest
from protocol.channels import LABEL_CHANNELS
from protocol.messages import write_query
from protocol.queries import LabelQuery, LabelTally
from protocol.scores import RANDOMIZED, SCORES
from tests.coverage import POPULATIONS, Cell, Method, failures
from tests.known import FALSE_ALARM, assert_rate_at_most
from tests.owners import K, LABEL_PLAN, asking, owner, signed


@pytest.mark.parametrize("score", sorted(RANDOMIZED))
@pytest.mark.parametrize("channel", list(LABEL_CHANNELS))
def test_randomised_scores_cover_over_the_wire(channel: str, score: str) -> None:
    """Of 40 campaigns of a confident model, those below the target are consistent with delta (false alarm 1e-6)."""
    cell = Cell(Method("labels", "certified", channel), score, POPULATIONS["confident"], 3_000)
    assert_rate_at_most(failures(cell, "wire", campaigns=40), 40, cell.delta)


@pytest.mark.parametrize("score", sorted(RANDOMIZED))
def test_the_place_of_a_report_says_nothing_of_its_number(score: str, tmp_path: Path) -> None:
    """Of answers taken in as bytes, the scores of one label are as they stand uncorrelated with their places (1e-9)."""
    plan = signed(LABEL_PLAN, score=score)
    name, n = digest(LABEL_PLAN.__class__(**{**LABEL_PLAN.__dict__, "score": score}).to_bytes()), 4_000
    query = LabelQuery(LABEL_CHANNELS["k-rr"](k=K, epsilon=4.0))
    intake = Intake(plan=name, score=SCORES[score])
    intake.open(query, 0)
    for answer in asking(plan, [owner(tmp_path / str(i), seed=i, n=n // 2) for i in range(2)])(
        write_query(query, plan=name, round_=0)
    ):
        assert intake.admit(answer).accepted == n // 2
    tally = intake.tally()
    assert isinstance(tally, LabelTally)
    ranks = tally.scores.min(axis=1).argsort().argsort()
    assert abs(np.corrcoef(ranks, np.arange(n))[0, 1]) <= norm.isf(FALSE_ALARM / 2) / np.sqrt(n)
