"""Backbones, owners and plans of trainings of a head."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from confide.client.ledger.ledger import Ledger
from confide.client.policy import Policy
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.training.network_terms import described
from confide.protocol.models.model_file import Model
from confide.protocol.plan import Plan
from tests.support.networks.graphs import FLOAT, constant, model, node, proto, value
from tests.support.owners.owners import NOW
from tests.support.training.learners import LEARNS, TRAINING, people

INPUTS = 6


def backbone(**options: Any) -> Model:
    """A model from four features to `INPUTS` numbers between 0 and 1."""
    matrix = np.random.default_rng(7).normal(0, 3, (4, INPUTS))
    nodes = [
        node("Sub", ["x", "half"], ["c"]),
        node("MatMul", ["c", "w"], ["z"]),
        node("Sigmoid", ["z"], ["p"]),
    ]
    return model(proto(nodes, [constant("half", 0.5), constant("w", matrix)], **SHAPES | options))


SHAPES: dict[str, Any] = {
    "inputs": [value("x", FLOAT, ["n", 4])],
    "outputs": [value("p", FLOAT, ["n", INPUTS])],
}
BACKBONE = backbone()


def stretched(*, first: str = "x", kind: int = FLOAT) -> Model:
    """A model whose outputs are far outside [0, 1], or not finite: 8 x - 4, log(x - 0.5), 1 / 0."""
    nodes = [
        node("Mul", [first, "eight"], ["m"]),
        node("Sub", ["m", "four"], ["value_0"]),
        node("Sub", [first, "half"], ["constant_0"]),
        node("Log", ["constant_0"], ["head_single"]),
        node("Sub", [first, first], ["none"]),
        node("Div", ["eight", "none"], ["head__zero"]),
        node("Concat", ["value_0", "head_single", "head__zero"], ["features"], axis=1),
        node("Cast", ["features"], ["probabilities"], to=kind),
    ]
    numbers = {"eight": 8.0, "four": 4.0, "half": 0.5}
    return model(
        proto(
            nodes,
            [constant(name, [content]) for name, content in numbers.items()],
            inputs=[value(first, FLOAT, ["records", 2])],
            outputs=[
                value("none", FLOAT, ["records", 2]),
                value("probabilities", kind, ["records", 6]),
            ],
        )
    )


def head_plan(plan: Plan, given: Model, *, text: str = "head", features: int) -> Plan:
    """The plan of the same training with a head on this model."""
    fields = described(text, features=features, outputs=plan.labels)
    return replace(plan, model=given.digest, terms=replace(plan.terms, **fields))


PLAN = head_plan(TRAINING, BACKBONE, features=INPUTS)
ALLOWS = replace(LEARNS, models=frozenset({BACKBONE.digest}))


def owner(
    folder: Path,
    *,
    held: Records,
    given: Model | None = BACKBONE,
    policy: Policy = ALLOWS,
    cache: Path | None = None,
) -> Respondent:
    folder.mkdir(exist_ok=True)
    return Respondent(
        records=held,
        policy=lambda: policy,
        ledger=Ledger(folder / "ledger.sqlite"),
        secret=bytes(32),
        entropy=SeededEntropy("head"),
        now=lambda: NOW,
        model=given,
        cache=cache,
    )


def held(features: NDArray[Any], labels: NDArray[Any], **more: Any) -> Records:
    names = tuple(str(i).encode() for i in range(len(labels)))
    return Records(names, None, labels, None, features, **more)


def crowd(seed: int = 1, n: int = 400) -> Records:
    return held(*people(n, seed))


def outputs(given: Model, features: NDArray[Any], width: int) -> NDArray[np.float32]:
    """What a model returns for each record, as it is."""
    session = given.open()
    found = np.empty((len(features), width), dtype=np.float32)
    session.each(features, found)
    return found


def opset(given: Model, version: int) -> bytes:
    """The same file as if it were of another version of ONNX's operators."""
    made = onnx.ModelProto.FromString(given.data)
    made.opset_import[0].version = version
    return made.SerializeToString()
