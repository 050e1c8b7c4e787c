"""Scores as plans and cards name them: one text for one score, with its constants."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.protocol.cards.verify.released import released_score
from confide.protocol.errors import BadInput, Refused
from confide.protocol.methods.labels.terms import LabelTerms
from confide.protocol.plan import Plan
from confide.protocol.scores.registry import SCORES, find_label_score, find_score
from confide.protocol.wire import wire_pb2 as wire
from tests.support.owners.owners import PLAN

LABELS = LabelTerms(variant="certified", channel="k-rr", epsilon=1.0, delta=0.1)
TEXTS = [
    "hps",
    "aps temperature=1.5",
    "raps penalty=0.01 free_ranks=5",
    "raps penalty=0.25 free_ranks=0 temperature=0.5",
    "saps penalty=0.1",
    "absolute-residual bound=12.5",
    "normalised-residual bound=4",
    "cqr bound=1e-06",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_names_one_score_and_is_its_only_name(text: str) -> None:
    """Reading a text and writing it again gives the same text, and plans hold it."""
    assert find_score(text).text == text
    labels = 2 if find_score(text).task.of_labels else 0
    plan = replace(PLAN, score=text, labels=labels)
    assert Plan.from_bytes(plan.to_bytes()) == plan


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "accepted: hps"),
        ("hsp", "accepted: hps"),
        ("hps bound=1", "no constant 'bound'; accepted: temperature"),
        ("raps penalty", "constants as key=number"),
        ("raps penalty=x", "constants as key=number"),
        ("raps penalty=1 penalty=2", "each once"),
        ("raps penalty=-1", "penalty of score raps is -1.0"),
        ("raps penalty=nan", "penalty of score raps is nan"),
        ("hps temperature=0", "temperature of score hps is 0.0"),
        ("hps temperature=1e400", "temperature of score hps is inf"),
        ("cqr", "needs a public bound"),
        ("cqr bound=0", "bound of score cqr is 0.0"),
        ("cqr bound=inf", "bound of score cqr is inf"),
        ("cqr bound=1 range=2", "no constant 'range'"),
    ],
)
def test_other_texts_are_refused(text: str, says: str) -> None:
    """The message says what was found and what is accepted."""
    with pytest.raises(BadInput, match=says):
        find_score(text)


@pytest.mark.parametrize("text", ["raps", "raps free_ranks=5 penalty=0.01", "hps temperature=1.50"])
def test_a_plan_holds_the_whole_text_only(text: str) -> None:
    """Constants left to defaults, in another order or spelt otherwise: owners refuse the plan."""
    with pytest.raises(BadInput, match="accepted is its whole name"):
        replace(PLAN, score=text)
    message = wire.Plan.FromString(PLAN.to_bytes())
    message.score = text
    with pytest.raises(Refused):
        Plan.from_bytes(message.SerializeToString(deterministic=True))


@pytest.mark.parametrize(("score", "labels"), [("hps", 0), ("hps", 1), ("cqr bound=1", 2)])
def test_labels_fit_the_task(score: str, labels: int) -> None:
    """A score of numbers has no labels, one of labels at least two: in plans and on cards."""
    with pytest.raises(BadInput, match=f"labels is {labels}"):
        replace(PLAN, score=score, labels=labels)
    released = {"score": score, "task": find_score(score).task.name, "labels": labels}
    assert not all(finding.holds for finding in released_score({"released": released}))


def test_a_card_with_another_task_fails() -> None:
    """The task follows from the score."""
    released = {"score": "hps", "task": "regression", "labels": 3}
    failed = [f.clause for f in released_score({"released": released}) if not f.holds]
    assert failed == ["released/task"]


def test_labels_need_a_score_of_labels() -> None:
    """The method labels has no meaning for numbers."""
    with pytest.raises(BadInput, match="score of numbers"):
        replace(PLAN, score="cqr bound=1", labels=0, terms=LABELS)
    with pytest.raises(BadInput, match="accepted: hps"):
        find_label_score("cqr bound=1")


@pytest.mark.parametrize("name", sorted(SCORES))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_temperature_scales_probabilities_first(name: str, dtype: type) -> None:
    """A tempered score is the score of p^(1/T) / sum, the same for the truth and for all labels.

    Values are compared with the textbook formula on logits; rows with zeros stay valid.
    """
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 3, (200, 7))
    logits[:5, 0] = -np.inf
    probs: NDArray[Any] = _softmax(logits).astype(dtype)
    labels, u = rng.integers(0, 7, 200), rng.random(200)
    score = SCORES[name].with_constants({"temperature": 2.5})
    every = score.all_scores(probs, u=u)
    own = score.true_scores(probs, labels, u=u)
    assert np.array_equal(every[np.arange(200), labels], own)
    expected = SCORES[name].all_scores(_softmax(logits / 2.5).astype(dtype), u=u)
    # Ranks of float32 ties may differ; hps, a function of the own probability alone, may not.
    assert np.mean(np.abs(every - expected) < 1e-5) > (0.999 if name == "hps" else 0.97)


def _softmax(logits: NDArray[Any]) -> NDArray[Any]:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
