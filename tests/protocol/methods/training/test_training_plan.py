"""Plans of federated training: their terms, their price and their way over the wire."""

import math
import time
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from confide.client.explain import explain
from confide.protocol.architectures.base import canonical, parameters_digest
from confide.protocol.architectures.stacks import MLP
from confide.protocol.errors import BadInput, Refused
from confide.protocol.plan import Plan, open_plan
from confide.protocol.wire import wire_pb2 as wire
from tests.support.networks.stacks import first_weights, layered, predict, split
from tests.support.owners.owners import KEY, NOW, PLAN, PUBLIC, changed, signed
from tests.support.training.learners import LEARNS, TERMS, TRAINING


def test_weights_keep_their_places() -> None:
    """Splitting gives matrices and biases of the right shapes, and prediction is the stack they
    spell."""
    terms = replace(TERMS, **layered(4, 6, 3))
    weights = first_weights(terms)
    assert [(matrix.shape, bias.shape) for matrix, bias in split(terms, weights)] == [
        ((6, 4), (6,)),
        ((3, 6), (3,)),
    ]
    assert len(weights) == terms.size == 4 * 6 + 6 + 6 * 3 + 3
    assert np.allclose(predict(terms, weights, np.zeros((2, 4))).sum(axis=1), 1)


def test_a_training_plan_travels_and_explains_itself() -> None:
    """Terms survive the wire to the last bit, and the owner reads what would leave, of which
    network, and how many records take part; a model is named if the plan names one."""
    plan, _ = open_plan(signed(TRAINING), trusted={PUBLIC}, now=NOW)
    assert plan == TRAINING
    page = explain(plan, LEARNS)
    assert "trains a model" in page
    assert "6 times leave the 15 weights of the network linear {} after 8 steps" in page
    assert "Model 0" not in page
    assert "records take part" not in page
    assert "About 45% of your records take part" in explain(replace(plan, share=(0, 0.45)), LEARNS)


def unchecked(*widths: int) -> dict[str, Any]:
    """The fields of a stack that may be too large to be made."""
    shapes: Any = MLP.shapes.fget(SimpleNamespace(widths=widths))  # type: ignore[attr-defined]
    return {
        "architecture": "mlp",
        "arguments": canonical({"hidden": list(widths[1:-1])}),
        "features": widths[0],
        "outputs": widths[-1],
        "size": sum(math.prod(shape) for shape in shapes.values()),
        "parameters": parameters_digest(shapes),
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"architecture": "transformer"},
        {"architecture": "package.module:factory"},
        {"architecture": "a b", "source": bytes(32)},
        {"architecture": "package.module:factory", "source": bytes(31)},
        {"arguments": '{"hidden":[3]}'},
        {"arguments": "[" * 5000},
        {"arguments": "{ }"},
        {"size": 14},
        {"size": 0},
        {"parameters": bytes(32)},
        {"features": 5},
        {"outputs": 0},
        {"architecture": "mlp", "arguments": '{"hidden":[0]}'},
        {"architecture": "mlp", "arguments": '{"hidden":[true]}'},
        {"architecture": "cnn", "arguments": '{"image":[1,2,3]}'},
        {"architecture": "cnn", "arguments": '{"channels":[4,4,4],"image":[1,2,2]}'},
        {"rounds": 0},
        {"clip": 0.0},
        {"noise_multiplier": 0.0},
        {"sampling_rate": 2.0},
        {"learning_rate": float("nan")},
        {"noise_multiplier": 0.1},
        unchecked(10_000, 10_000),
        unchecked(131_072, 3),
        unchecked(4, 65_536, 1, 65_536, 3),
        unchecked(4, 131_071, 1, 131_071, 1, 131_071, 3),
        unchecked(4, *[3] * 16),
        {"clip": 1e200},
        {"clip": 5e-324},
        {"batch": 1e-300},
        {"batch": 2e6},
        {"learning_rate": 1e300},
        {"noise_multiplier": float("inf")},
        {"sampling_rate": 1e-9},
        {"rounds": 10_001},
        {"local_steps": 1_001},
        {"rounds": 10_000, "local_steps": 1_000},
    ],
)
def test_impossible_terms_are_refused(changes: dict[str, Any]) -> None:
    """In code with what was found and what is accepted; in a signed plan as malformed."""
    with pytest.raises(BadInput, match="accepted"):
        replace(TERMS, **changes)
    message = wire.Plan.FromString(TRAINING.to_bytes())
    message.terms = wire.TrainingTerms(**asdict(TERMS) | changes).SerializeToString()
    data = message.SerializeToString()
    signed_plan = wire.SignedPlan(
        plan=data, key=PUBLIC, signature=KEY.sign(b"confide plan v2\0" + data)
    )
    with pytest.raises(Refused) as refused:
        open_plan(signed_plan.SerializeToString(), trusted={PUBLIC}, now=NOW)
    assert refused.value.code == wire.Code.MALFORMED


def test_no_terms_take_long_to_price() -> None:
    """The dearest corners of the limits are priced in well under a second each."""
    for noise, rate in ((0.2, 1.0), (0.2, 1e-6), (1e3, 1e-6), (1e3, 1.0), (0.7, 0.013)):
        started = time.perf_counter()
        with pytest.raises(BadInput, match=r"cost epsilon \d.*the plan says 1e-06"):
            replace(
                TERMS,
                epsilon=1e-6,
                privacy_delta=1e-9,
                noise_multiplier=noise,
                sampling_rate=rate,
                rounds=1_048,
                local_steps=1_000,
            )
        assert time.perf_counter() - started < 1.0


def test_a_plan_costs_what_it_says() -> None:
    """Terms that cost a record more than the plan's epsilon are no plan, here and over the wire."""
    with pytest.raises(BadInput, match=r"cost epsilon 3\.99.*the plan says 3"):
        changed(TRAINING, epsilon=3.0)
    message = wire.Plan.FromString(TRAINING.to_bytes())
    terms = wire.TrainingTerms.FromString(message.terms)
    terms.epsilon = 3.0
    message.terms = terms.SerializeToString()
    with pytest.raises(Refused):
        Plan.from_bytes(message.SerializeToString())


def test_terms_belong_to_training_alone() -> None:
    """A calibration with terms, a training without, and a last layer of other labels are no
    plans."""
    with pytest.raises(BadInput, match="one output a label"):
        replace(TRAINING, labels=4)
    for wrong in (
        {"terms": b""},
        {"terms": PLAN.terms.to_bytes()},
        {"labels": 4},
        {"method": "bits"},
        {"method": "labels"},
        {"method": "central"},
    ):
        message = wire.Plan.FromString(TRAINING.to_bytes())
        for name, value in wrong.items():
            setattr(message, name, value)
        with pytest.raises(Refused) as refused:
            Plan.from_bytes(message.SerializeToString())
        assert refused.value.code == wire.Code.MALFORMED
