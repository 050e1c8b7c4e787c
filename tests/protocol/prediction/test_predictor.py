import numpy as np
import pytest
import torch

from confide.protocol.errors import BadInput
from confide.protocol.prediction.predictor import Predictor
from confide.protocol.scores.registry import SCORES
from confide.protocol.scores.scoring import all_scores

PROBS = np.array([[0.7, 0.2, 0.1], [0.4, 0.35, 0.25]])


def test_sets_hold_the_labels_within_the_threshold() -> None:
    """Boolean matrix, lists and sizes tell the same sets."""
    predictor = Predictor(SCORES["hps"], 0.65)
    assert predictor.predict_set(PROBS).tolist() == [[True, False, False], [True, True, False]]
    assert predictor.predict_labels(PROBS) == [[0], [0, 1]]
    assert predictor.sizes(PROBS).tolist() == [1, 2]


def test_a_tensor_comes_back_as_a_tensor() -> None:
    """Torch in, torch out, with the same sets as numpy, gradients or not."""
    tensor = torch.tensor(PROBS, dtype=torch.float32, requires_grad=True)
    predictor = Predictor(SCORES["aps"], 0.8)
    sets = predictor.predict_set(tensor)
    assert isinstance(sets, torch.Tensor)
    assert sets.dtype == torch.bool
    assert sets.tolist() == predictor.predict_set(PROBS.astype(np.float32)).tolist()
    assert predictor.sizes(tensor).tolist() == sets.sum(dim=1).tolist()


@pytest.mark.parametrize("score", sorted(name for name in SCORES if not SCORES[name].randomized))
def test_sets_do_not_depend_on_the_precision_of_probabilities(score: str) -> None:
    """A threshold that is a label's score, as owners compute it, holds that label in sets made from
    floats and from doubles."""
    rng = np.random.default_rng(1)
    for k in (3, 7, 10):
        probs = rng.dirichlet(np.ones(k), 20)
        for threshold in all_scores(SCORES[score], probs.astype(np.float32)).ravel().tolist():
            predictor = Predictor(SCORES[score], threshold)
            assert np.array_equal(
                predictor.predict_set(probs), predictor.predict_set(probs.astype(np.float32))
            )


def test_threshold_one_holds_every_label() -> None:
    """The trivial threshold predicts everything, for every score."""
    for score in SCORES.values():
        assert Predictor(score, 1.0).predict_set(PROBS, u=np.array([0.0, 1.0])).all()


def test_impossible_thresholds_and_probabilities_are_refused() -> None:
    """A threshold outside [0, 1] and rows that do not sum to one are refused."""
    with pytest.raises(BadInput, match=r"threshold is 1\.5"):
        Predictor(SCORES["hps"], 1.5)
    with pytest.raises(BadInput, match="sum to"):
        Predictor(SCORES["hps"], 0.5).predict_set(PROBS * 2)
