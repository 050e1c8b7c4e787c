"""What a factory does at weights that an aggregator chooses: where it fails on a record, or lets
records meet, its owner neither tells of one nor lets one speak through the others."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from confide.client.explain import explain
from confide.client.training.computing import ENGINE_NAMES, Computing
from confide.client.training.local_round import Trainer
from confide.client.training.networks import count_errors, load_weights
from confide.protocol.architectures.base import split_weights
from confide.protocol.exact.lattice import CLIP_UNITS, sensitivity
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.wire import wire_pb2 as wire
from tests.support.networks.factories import allowed, installed, plan_of, vetted
from tests.support.training.learners import TRAINING, answer, people, rows

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from installed(tmp_path, monkeypatch)


def moved_by_one(package: Path, *, engine: str, together: bool = False) -> float:
    """How many clipping lengths one record moves a sum by, at weights chosen for it.

    The first expert takes a record whose first feature is above 1/2: 48 of 64, or 49.
    """
    terms = TrainingTerms.of(plan_of(package, "capacity").terms)
    network = terms.network()
    weights = network.first_weights().astype(float)
    for name, values in split_weights(network.shapes, weights):
        if name == "route.weight":
            values[...] = 0
            values[0, 0] = 32
        if name == "route.bias":
            values[...] = -16, 0
    sums = Trainer(terms, computing=Computing("cpu", engine), vetted=together).sums
    rng = np.random.default_rng(0)
    features, labels = rng.random((64, 4)), rng.integers(0, 3, 64)
    features[:, 0] = np.where(np.arange(64) < 16, 0.1, 0.9)
    before = sums(weights, (features, labels), SeededEntropy(1))
    features[0, 0] = 0.9
    after = sums(weights, (features, labels), SeededEntropy(1))
    return float(np.linalg.norm((after - before).astype(float))) / CLIP_UNITS


@pytest.mark.parametrize("engine", ["auto", "alone", "single"])
def test_a_factory_cannot_mix_records_at_weights_that_an_aggregator_chooses(
    engine: str, package: Path
) -> None:
    """Experts with a capacity pass every trial on made-up rows, and one record over the capacity
    sends all others to the other expert. Unless its owner has vetted it, it sees no others."""
    assert 0 < moved_by_one(package, engine=engine) <= 2.0
    if engine == "auto":
        assert moved_by_one(package, engine=engine, together=True) > 4.0


def test_a_table_that_one_record_changes_is_as_it_was_for_all_others(package: Path) -> None:
    """A look-up shortens a long row of an embedding in place. One record that looks up the row that
    an aggregator has made long moves sum and count of errors by no more than itself."""
    terms = TrainingTerms.of(plan_of(package, "shortened").terms)
    network = terms.network()
    weights = np.zeros(network.size)
    for name, values in split_weights(network.shapes, weights):
        if name == "table.weight":
            values[0], values[3] = 0.1, 1e3
        if name == "last.weight":
            values[...] = np.linspace(-1e-3, 1e-3, len(values))[:, None]
        if name == "last.bias":
            values[0] = 1.0
    sums = Trainer(terms, computing=Computing("cpu", "auto")).sums
    features, labels = np.zeros((64, 4)), np.zeros(64, dtype=np.int64)
    other = features.copy()
    other[0, 0] = 1.0
    both = [sums(weights, (rows, labels), SeededEntropy(1)) for rows in (features, other)]
    assert 0 < np.linalg.norm((both[1] - both[0]).astype(float)) / CLIP_UNITS <= 2.0
    errors = [
        count_errors(network, weights, (rows, labels), centre=0.0) for rows in (features, other)
    ]
    assert abs(errors[1] - errors[0]) <= 1


@pytest.mark.parametrize("engine", ["stack", "ghost", "hooks"])
def test_an_engine_of_batches_needs_a_vetted_factory(
    engine: str, package: Path, tmp_path: Path
) -> None:
    """Whatever the owner configured for its other trainings; an entry of the policy changes it at
    once, and what a batch has seen does not leave when that is taken back."""
    plan, features, labels = plan_of(package, "plain"), *people(60, 1)
    weights = TrainingTerms.of(plan.terms).network().first_weights()
    present = [allowed(plan)]
    owner = rows(
        60,
        features,
        labels,
        tmp_path / "owner",
        policy=lambda: present[-1],
        computing=Computing("cpu", engine),
    )
    refused, leaves = wire.Code.CODE_NOT_ALLOWED, wire.Code.OK if engine != "stack" else None
    assert answer(owner, plan, weights, 0).code == refused
    present.append(vetted(plan))
    assert leaves is None or answer(owner, plan, weights, 0).code == leaves
    present.append(allowed(plan))
    assert answer(owner, plan, weights, 0).code == refused
    assert answer(owner, plan, weights, 1).code == refused


def test_an_owner_is_told_how_a_factory_runs(package: Path) -> None:
    """Before it takes part: that code of another package sees one record at a time, or many."""
    plan = plan_of(package, "plain")
    assert "it sees one record at a time" in explain(plan, allowed(plan))
    assert "You list this network as vetted" in explain(plan, vetted(plan))
    assert "another package;" not in explain(TRAINING, allowed(plan))


@pytest.mark.parametrize("engine", ["auto", *ENGINE_NAMES[1:]])
def test_a_record_on_which_a_factory_fails_is_not_told(
    engine: str, package: Path, tmp_path: Path
) -> None:
    """A table that a large feature leaves at weights chosen for it: with such a record and without
    one the owner answers, and the sums differ by no more than one record may move them."""
    terms = TrainingTerms.of(plan_of(package, "binned").terms)
    network, features = terms.network(), people(40, 1)[0] * 0.8
    weights = network.first_weights().astype(float)
    for name, values in split_weights(network.shapes, weights):
        values[...] = 20.0 if name == "width.weight" else values
    sums = Trainer(terms, computing=Computing("cpu", engine), vetted=True).sums
    labels = np.zeros(40, dtype=np.int64)
    found = []
    for largest in (0.5, 0.95):
        features[7, 0] = largest
        found.append(sums(weights, (features, labels), SeededEntropy(1)))
        wrong = count_errors(network, weights, (features, labels), centre=terms.centre)
    moved = np.linalg.norm((found[1] - found[0]).astype(float))
    assert 0 < moved <= 2 * sensitivity(terms.size)
    module = network.module().double()
    load_weights(module, network, weights)
    with pytest.raises(IndexError):
        module(torch.from_numpy(features))
    features[7, 0] = 0.5
    before = count_errors(network, weights, (features, labels), centre=terms.centre)
    assert wrong - before in (0, 1)


def test_an_owner_answers_whatever_a_factory_does_with_a_record(
    package: Path, tmp_path: Path
) -> None:
    """Through policy, ledger and wire; an answer INTERNAL would tell that the record is there."""
    plan = plan_of(package, "binned")
    features, labels = people(60, 1)
    network = TrainingTerms.of(plan.terms).network()
    weights = network.first_weights()
    for name, values in split_weights(network.shapes, weights):
        values[...] = 20.0 if name == "width.weight" else values
    owner = rows(60, features, labels, tmp_path / "owner", policy=allowed(plan))
    features[:] = 0.95
    assert answer(owner, plan, weights, 0).code == wire.Code.OK
