"""A head trained on the outputs of a frozen model, on the owner's path."""

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from confide.aggregator.campaigns.driver import run_training
from confide.aggregator.campaigns.training_result import model_file
from confide.client.cli.app import app as client_app
from confide.client.explain import explain
from confide.client.ledger.ledger import Ledger
from confide.client.records import score_cache
from confide.client.records.records import Records
from confide.client.records.score_cache import head_inputs, probabilities
from confide.client.respond import Respondent
from confide.protocol.architectures.export import to_onnx
from confide.protocol.channels.bit import Bit
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.bits import BitQuery, BitTerms
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.models.model_file import Model
from confide.protocol.plan import Plan, digest, write_query
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse
from tests.support.networks.graphs import (
    constant,
    ending,
    failing,
    first_feature,
    model,
    node,
    not_a_number,
    proto,
    written,
)
from tests.support.networks.heads import (
    ALLOWS,
    BACKBONE,
    INPUTS,
    PLAN,
    crowd,
    head_plan,
    held,
    opset,
    outputs,
    owner,
    stretched,
)
from tests.support.networks.stacks import first_weights
from tests.support.owners.boundary import LEARNS as CLAUSES
from tests.support.owners.boundary import STEPS, home, weights_of
from tests.support.owners.boundary import TRAINING as NOW_TRAINING
from tests.support.owners.boundary import people as written_people
from tests.support.owners.hostile import Puppet
from tests.support.owners.owners import asking, signed
from tests.support.training.learners import LEARNS, TRAINING, answer, people

CODE = wire.Code


def code(folder: Path, records: Records, **given: Any) -> int:
    """The code of an answer to the first round; one that refuses spends nothing."""
    plan = given.pop("plan", PLAN)
    found = answer(owner(folder, held=records, **given), plan, _start(plan), 0).code
    spent = Ledger(folder / "ledger.sqlite").spent_by_record()
    assert (spent == (0, 0.0)) == (found != CODE.OK)
    return found


BITS = replace(
    TRAINING, campaign="bits", terms=BitTerms(variant="certified", epsilon=4.0, delta=0.1)
)


def bits_code(one: Respondent, plan: Plan) -> int:
    query = BitQuery(Bit(epsilon=4.0), 0.0, 1.0, (0.5,))
    sent = write_query(query, plan=digest(plan.to_bytes()), round_=0)
    return parse(wire.Answer, one.answer(signed(plan), sent)).code


def _start(plan: Plan) -> Any:
    return first_weights(TrainingTerms.of(plan.terms))


def test_owners_train_a_head_and_calibrate_the_file_that_comes_of_it(tmp_path: Path) -> None:
    """The file has the backbone inside: it scores the owners' own features.

    The same head on another backbone is not what was trained, and no file is recognised where the
    backbone is not kept.
    """
    owners = [owner(tmp_path / str(i), held=crowd(i), cache=tmp_path / "kept") for i in range(3)]
    trains = replace(PLAN, share=(0.0, 0.6))
    learned, _ = run_training(trains, asking(signed(trains), owners))
    file = Model.of(model_file(trains, learned.weights, backbone=BACKBONE.data))
    features, labels = people(500, 9)
    assert np.mean(outputs(file, features, 3).argmax(axis=1) == labels) > 0.8

    rest: dict[str, Any] = {"training": digest(trains.to_bytes()), "share": (0.6, 1.0)}
    bits = replace(BITS, model=file.digest, **rest)
    policy = replace(ALLOWS, methods=frozenset({"bits"}), trained_models=True)
    given: dict[str, Any] = {"held": crowd(0), "policy": policy}
    one = owner(tmp_path / "0", given=file, cache=tmp_path / "kept", **given)
    terms, older = TrainingTerms.of(trains.terms), opset(BACKBONE, 16)
    other = Model.of(to_onnx(terms.network(), learned.weights, centre=terms.centre, backbone=older))
    bad = owner(tmp_path / "0", given=other, cache=tmp_path / "kept", **given)
    assert bits_code(bad, replace(bits, model=other.digest)) == CODE.MODEL_NOT_ALLOWED
    lost = owner(tmp_path / "0", given=file, **given)
    assert bits_code(lost, bits) == CODE.MODEL_NOT_ALLOWED
    assert bits_code(one, bits) == CODE.OK


@pytest.mark.parametrize("text", ["head", "head hidden=8"])
def test_a_head_is_the_same_layers_trained_on_the_outputs(text: str, tmp_path: Path) -> None:
    """Bit for bit, so that everything proved of those holds for a head; also for outputs that are
    clipped, or 0 because they are not finite."""
    rng = np.random.default_rng(0)
    features, labels = rng.random((300, 2)), rng.integers(3, size=300)
    given = stretched()
    raw = outputs(given, features, 6)
    inputs = np.where(np.isfinite(raw), raw, 0).clip(0, 1)
    plan = head_plan(TRAINING, given, text=text, features=6)
    allowed = replace(LEARNS, models=frozenset({given.digest}))
    one = owner(tmp_path / "head", held=held(features, labels), given=given, policy=allowed)
    layers = head_plan(TRAINING, given, text=text.replace("head ", "mlp "), features=6)
    if text == "head":
        layers = head_plan(TRAINING, given, text="linear", features=6)
    other = owner(tmp_path / "layers", held=held(inputs, labels), given=None, policy=allowed)
    found = answer(one, plan, _start(plan), 0)
    assert found.code == CODE.OK
    assert weights_of(found) == weights_of(answer(other, layers, _start(layers), 0))


def test_other_models_and_records_are_refused(tmp_path: Path) -> None:
    """A backbone that the policy does not list, another file or none, records without features."""
    records = crowd()
    features, labels = people(400, 1)
    assert code(tmp_path / "listed", records) == CODE.OK
    refused: dict[str, dict[str, Any]] = {
        "not listed": {"policy": LEARNS},
        "another file": {"given": stretched()},
        "no file": {"given": None},
        "the file listed, another in the plan": {"plan": replace(PLAN, model=bytes([1] * 32))},
        "trained models allowed": {"policy": replace(LEARNS, trained_models=True)},
    }
    for name, given in refused.items():
        assert code(tmp_path / name, records, **given) == CODE.MODEL_NOT_ALLOWED, name
    scored = Records(
        records.names, np.full((400, 3), 1 / 3, dtype=np.float32), labels, BACKBONE.digest
    )
    assert code(tmp_path / "scored", scored) == CODE.MODEL_NOT_ALLOWED
    both = replace(scored, features=features)
    assert code(tmp_path / "both", both) == CODE.OK


HOSTILE = {
    "honest": (first_feature(), False),
    "NaN above one half": (not_a_number(), True),
    "fails above one half": (failing(), True),
    "ends the process above one half": (ending("Div"), True),
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_a_record_on_which_the_backbone_fails_is_a_record_of_zeros(
    name: str, tmp_path: Path
) -> None:
    """The answer has the same code, and the same bits as if the outputs had been 0."""
    data, fails = HOSTILE[name]
    given = Model.of(data)
    rng = np.random.default_rng(0)
    first = rng.random(60).astype(np.float32)
    labels = rng.integers(3, size=60)
    inputs = np.stack([first, 1 - first], axis=1)
    if fails:
        inputs[first > 0.5] = 0
    plan = head_plan(TRAINING, given, features=2)
    policy = replace(LEARNS, models=frozenset({given.digest}))
    features = np.stack([first, first], axis=1)
    one = owner(tmp_path / "head", held=held(features, labels), given=given, policy=policy)
    linear = head_plan(TRAINING, given, text="linear", features=2)
    other = owner(tmp_path / "linear", held=held(inputs, labels), given=None, policy=policy)
    found = answer(one, plan, _start(plan), 0)
    assert found.code == CODE.OK
    assert weights_of(found) == weights_of(answer(other, linear, _start(linear), 0))


def test_a_wrong_number_of_outputs_says_nothing_of_records(tmp_path: Path) -> None:
    """If the backbone declares it, all records get one code, without a spend; if it depends on the
    record, those with another number are records of zeros."""
    plan = head_plan(TRAINING, BACKBONE, features=5)
    for seed in (1, 2):
        assert code(tmp_path / str(seed), crowd(seed), plan=plan) == CODE.INTERNAL
    # As many outputs as the record has features other than 0.
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Cast", ["places"], ["numbers"], to=1),
        node("Slice", ["numbers", "zero", "one"], ["p"]),
    ]
    ints = {"zero": [0], "one": [1]}
    given = model(proto(nodes, [constant(k, v, np.int64) for k, v in ints.items()]))
    policy = replace(LEARNS, models=frozenset({given.digest}))
    counted = head_plan(TRAINING, given, features=2)
    for number, last in enumerate((0.0, 1.0)):
        features = np.ones((60, 2))
        features[-1, 0] = last
        records = held(features, np.zeros(60, dtype=np.int64))
        found = code(
            tmp_path / f"counted {number}", records, given=given, policy=policy, plan=counted
        )
        assert found == CODE.OK


def test_outputs_and_probabilities_of_a_model_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are no probabilities are kept as they are for a head, and found again; damaged
    files are computed again."""
    given, records = stretched(), held(np.full((20, 2), 0.55), np.zeros(20, dtype=np.int64))
    scores = probabilities(records, given, labels=6, cache=tmp_path)
    assert np.array_equal(scores, np.full((20, 6), np.float32(1 / 6)))
    inputs = head_inputs(records, given, width=6, cache=tmp_path)
    assert inputs[0].tolist() == pytest.approx([0.4, 0.4, 0, 0, 0, 0], abs=1e-5)
    assert len(list(tmp_path.iterdir())) == 2
    (kept,) = tmp_path.glob("*.numbers")
    (other,) = tmp_path.glob("*.scores")
    whole = kept.read_bytes()
    # The second has the right checksum, and a number that no output can be.
    key = b"confide numbers 1" + given.digest + (6).to_bytes(4, "little") + b"\0"
    rest = whole[4:-4] + np.float32(2.0).tobytes()
    for damaged in (other.read_bytes(), zlib.crc32(key + rest).to_bytes(4, "little") + rest):
        kept.write_bytes(damaged)
        assert np.array_equal(head_inputs(records, given, width=6, cache=tmp_path), inputs)
        assert kept.read_bytes() == whole
    monkeypatch.setattr(score_cache, "score", None)
    assert np.array_equal(head_inputs(records, given, width=6, cache=tmp_path), inputs)
    assert np.array_equal(probabilities(records, given, labels=6, cache=tmp_path), scores)


def test_one_owner_answers_heads_and_scores_in_any_order(tmp_path: Path) -> None:
    """What the model returned for one kind of plan is not taken for the other."""
    features, labels = people(400, 1)
    policy = replace(ALLOWS, methods=frozenset({"bits", "training"}), epsilon_per_record=40.0)
    alone = owner(tmp_path / "alone", held=held(features, labels), policy=policy)
    expected = weights_of(answer(alone, PLAN, _start(PLAN), 0))
    mixed = owner(tmp_path / "mixed", held=held(features, labels), policy=policy)
    assert bits_code(mixed, replace(BITS, model=BACKBONE.digest, labels=INPUTS)) == CODE.OK
    mixed._entropy = SeededEntropy("head")
    assert weights_of(answer(mixed, PLAN, _start(PLAN), 0)) == expected


def test_the_owner_is_told_what_runs(tmp_path: Path) -> None:
    """`explain` says how the model sees records; `contribute` needs its file, and trains."""
    assert "one record at a time" in explain(PLAN, ALLOWS)
    assert "not among `models`" in explain(PLAN, LEARNS)
    assert "one record at a time" not in explain(TRAINING, LEARNS)
    path, name = written(tmp_path, first_feature())
    plan = head_plan(replace(NOW_TRAINING, terms=STEPS), Model.of(path.read_bytes()), features=2)
    place = home(tmp_path, name, **CLAUSES)
    records = written_people(tmp_path / "records.npz", np.full((200, 2), 0.4))
    asked = TrainingTerms.of(plan.terms)
    query = asked.read_query(
        wire.TrainingQuery(weights=_start(plan).tobytes()).SerializeToString(), labels=2
    )
    with Puppet(plan, query) as puppet:
        missing = CliRunner().invoke(client_app, puppet.options(place, records))
        assert (missing.exit_code, puppet.answers) == (2, [])
        assert "runs model" in " ".join(missing.stderr.split())
        assert puppet.ask(place, records, "--model", path) == 0
    assert puppet.codes == ["OK"]
    assert {file.suffix for file in (place / "scores").iterdir()} == {".numbers", ".onnx"}
