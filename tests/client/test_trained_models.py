"""Models that an owner does not list, by which a hostile aggregator would score its records.

A policy with `trained_models` accepts the result of a training. Against the owner's real command,
an aggregator calls any file the result of any campaign.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from confide.client.explain import explain
from confide.client.home import Home
from confide.client.owner import open_owner
from confide.protocol.architectures.export import to_onnx
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bits import BitQuery
from confide.protocol.models import scorer
from confide.protocol.plan import Plan, digest, sign_plan, write_query
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import ID_BYTES
from tests.support.networks.graphs import first_feature, written
from tests.support.owners.boundary import HALF as SURELY
from tests.support.owners.boundary import (
    LEARNS,
    PLAN,
    ROUND,
    STEPS,
    TRAINING,
    N,
    crowd,
    home,
    people,
)
from tests.support.owners.hostile import Puppet
from tests.support.owners.owners import KEY, PUBLIC, changed

TRAINS = replace(TRAINING, share=(0.0, 0.5), campaign="training")
BITS = replace(changed(PLAN, epsilon=4.0), share=(0.5, 1.0), campaign="calibration")
HALF = BitQuery(Bit(epsilon=4.0), 0.0, 1.0, (0.5,))
ALLOWS: dict[str, Any] = {
    **LEARNS,
    "methods": '["bits", "training"]',
    "trained_models": "true",
    "minimum_group": "5",
}
RESULT = to_onnx(STEPS.network(), np.linspace(-1, 1, STEPS.size, dtype=np.float32), centre=0.0)


def scored(place: Path, records: Path, *, file: bytes, training: Plan, by: Any = None) -> list[str]:
    """The codes that leave if an aggregator says that this file was trained by that campaign."""
    folder = records.parent / "sent"
    folder.mkdir(exist_ok=True)
    _, name = written(folder, file)
    plan = replace(BITS, model=name, training=digest(training.to_bytes()))
    with Puppet(plan, HALF, model=file) as puppet:
        if by is not None:
            puppet.signed = sign_plan(plan, by)
        puppet.ask(place, records)
    return puppet.codes


@pytest.fixture
def trained(tmp_path: Path) -> tuple[Path, Path]:
    """An owner that took part in a training."""
    place, records = home(tmp_path, **ALLOWS), people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(TRAINS, ROUND) as puppet:
        assert puppet.ask(place, records) == 0
    return place, records


def test_the_result_of_a_training_is_used(trained: tuple[Path, Path]) -> None:
    """Its network, with weights that only the aggregator knows, as `explain` says."""
    assert scored(*trained, file=RESULT, training=TRAINS) == ["OK"]
    plan = replace(BITS, training=digest(TRAINS.to_bytes()))
    assert "You do not list this model" in explain(plan, Home(trained[0]).policy())


def test_another_graph_is_no_result_of_a_training(trained: tuple[Path, Path]) -> None:
    """A model that tells a feature, the right file with a field more, and one cut short."""
    for file in (first_feature(), RESULT + b"\x38\x00", RESULT[:-1]):
        assert scored(*trained, file=file, training=TRAINS) == ["MODEL_NOT_ALLOWED"]


def test_only_a_training_has_a_result(tmp_path: Path) -> None:
    """A campaign of bits that the owner answered is named as the training of an unlisted model."""
    path, name = written(tmp_path, first_feature())
    place, records = home(tmp_path, name, **ALLOWS), people(tmp_path / "records.npz", crowd(0.9))
    first = replace(BITS, model=name, campaign="first", share=(0.0, 0.5))
    with Puppet(first, HALF) as puppet:
        assert puppet.ask(place, records, "--model", path) == 0
    for file in (RESULT, first_feature() + b"\x38\x00"):
        assert scored(place, records, file=file, training=first) == ["MODEL_NOT_ALLOWED"]


def test_a_training_of_another_aggregator_counts_for_nothing(trained: tuple[Path, Path]) -> None:
    """The owner trusts both keys; the second one names the training of the first."""
    place, records = trained
    other = Ed25519PrivateKey.from_private_bytes(bytes(32))
    policy = Home(place).policy_file
    both = f'["{PUBLIC.hex()}", "{other.public_key().public_bytes_raw().hex()}"]'
    policy.write_text(policy.read_text().replace(f'["{PUBLIC.hex()}"]', both))
    found = scored(place, records, file=RESULT, training=TRAINS, by=other)
    assert found == ["MODEL_NOT_ALLOWED"]
    assert scored(place, records, file=RESULT, training=TRAINS) == ["OK"]


def test_an_unlisted_file_is_not_opened_before_it_is_recognised(
    trained: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading a graph costs time and memory of the sender's choice."""
    opened: list[Any] = []
    monkeypatch.setattr(scorer, "_scorer", lambda: opened.append(1))
    assert scored(*trained, file=first_feature(), training=TRAINS) == ["MODEL_NOT_ALLOWED"]
    assert not opened


def test_results_that_came_with_records_are_not_those_of_the_model(tmp_path: Path) -> None:
    """One process answers both: a plan that takes probabilities as they came, and one of a chain
    with the same model, which has to run it."""
    path, name = written(tmp_path, first_feature())
    place, records = home(tmp_path, name, **ALLOWS), tmp_path / "records.npz"
    given = np.repeat([[1.0, 0.0]], N, axis=0)
    features = np.full((N, 2), 0.1)
    labels = np.zeros(N, dtype=np.int64)
    np.savez(records, ids=np.arange(N), labels=labels, features=features, probs=given)
    sure = replace(PLAN, model=name)
    plans = [
        replace(sure, campaign="as they came", share=(0.0, 0.5)),
        replace(sure, campaign="of a chain", share=(0.5, 1.0), training=bytes(32)),
    ]
    one, shares = open_owner(Home(place), records, path), []
    for plan in plans:
        query = write_query(SURELY, plan=digest(plan.to_bytes()), round_=0)
        answer = wire.Answer.FromString(one.answer(sign_plan(plan, KEY), query))
        assert answer.code == wire.Code.OK
        reports = wire.BitReports.FromString(answer.batch.body).reports
        bits = np.unpackbits(np.frombuffer(reports, dtype=np.uint8)).sum()
        shares.append(bits / (len(answer.batch.ids) // ID_BYTES))
    assert shares == [1.0, 0.0]
