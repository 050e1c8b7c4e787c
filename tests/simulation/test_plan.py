"""`confide.plan`: a plan from the settings that matter."""

from pathlib import Path

import numpy as np
import pytest

import confide
from confide.protocol.errors import BadInput
from confide.protocol.methods.labels.terms import LabelTerms
from confide.protocol.scores.registry import find_label_score


def test_a_plan_has_what_was_asked_and_defaults_for_the_rest(tmp_path: Path) -> None:
    """The model's digest is that of its file; the plan is valid now and can be signed and read."""
    (tmp_path / "model.onnx").write_bytes(b"weights")
    made = confide.plan(
        "bits:certified", records=9000, labels=26, model=tmp_path / "model.onnx", epsilon=0.5
    )
    assert (made.method, made.variant, made.epsilon, made.alpha) == ("bits", "certified", 0.5, 0.1)
    assert (made.expected_records, made.labels, made.campaign) == (9000, 26, "bits:certified")
    assert made.model.hex().startswith("9a129038")
    assert confide.Plan.from_bytes(made.to_bytes()) == made
    assert (made.expires - made.issued).days == 30


@pytest.mark.parametrize(
    ("campaign", "settings", "problem"),
    [
        ("labels:certified", {"mixture": "planned"}, "one round has one mixture of owners only"),
        ("bits:certified", {"bins": 64}, "bins is given, which bits:certified does not use"),
        ("bits:certified", {"epsilom": 1}, "epsilom is no setting of bits:certified; accepted: a"),
        ("bids:certified", {}, "method is 'bids'"),
        ("central:trusted", {"epsilon": -1.0}, "epsilon is -1.0"),
        ("bits:certified", {"model": "nowhere.onnx"}, "model nowhere.onnx cannot be read"),
    ],
)
def test_what_a_campaign_does_not_take_is_named(
    campaign: str, settings: dict[str, object], problem: str
) -> None:
    with pytest.raises(BadInput, match=problem):
        confide.plan(campaign, records=100, labels=3, **settings)  # type: ignore[arg-type]


def test_own_records_of_the_provider_place_the_ladder(tmp_path: Path) -> None:
    """The rungs are in the plan, even in set size on those records; calibration tests them."""
    probs = np.random.default_rng(1).dirichlet(np.full(5, 0.4), size=4000)
    np.savez(tmp_path / "own.npz", probs=probs[:2000])
    own = tmp_path / "own.npz"
    made = confide.plan("labels:certified", records=2000, labels=5, provider_data=str(own))
    ladder = np.array(LabelTerms.of(made.terms).ladder)
    scores = find_label_score("hps").all_scores(probs[:2000].astype(np.float32))
    sizes = np.array([(scores <= q).sum(axis=1).mean() for q in ladder[:-1]])
    assert np.diff(sizes).max() < 3 * np.diff(sizes).mean()
    truth = np.array([np.random.default_rng(2).choice(5, p=row) for row in probs[2000:]])
    placed = confide.calibrate(
        probs[2000:], truth, method="labels", epsilon=4.0, seed=1, provider_data=str(own)
    )
    assert placed.threshold in set(ladder.tolist())
