"""Networks of installed packages: refused with a code, before a record is touched, unless the owner
listed the code that is there now and it treats every record by itself."""

import importlib
import importlib.util
import py_compile
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.client.home import Home
from confide.client.policy import Policy
from confide.protocol.architectures.export import to_onnx
from confide.protocol.architectures.factories import source_digest
from confide.protocol.methods.training.network_terms import described
from confide.protocol.methods.training.query import TrainingQuery
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.models.model_file import Model
from confide.protocol.plan import Plan
from confide.protocol.wire import wire_pb2 as wire
from tests.support.networks.factories import SOURCE, allowed, forget, installed, plan_of
from tests.support.owners.boundary import LEARNS as CLAUSES
from tests.support.owners.boundary import STEPS, crowd, home
from tests.support.owners.boundary import TRAINING as NOW_TRAINING
from tests.support.owners.boundary import people as written_people
from tests.support.owners.hostile import Puppet
from tests.support.servers.servers import client
from tests.support.training.learners import LEARNS, answer, people, rows


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from installed(tmp_path, monkeypatch)


def code_of(plan: Plan, policy: Policy, folder: Path, weights: Any = None) -> int:
    features, labels = people(60, 1)
    owner = rows(60, features, labels, folder, policy=policy)
    terms = TrainingTerms.of(plan.terms)
    start = np.zeros(terms.size, dtype=np.float32) if weights is None else weights
    return answer(owner, plan, start, 0).code


@pytest.mark.parametrize(
    ("factory", "arguments"), [("plain", {}), ("plain", {"hidden": 7}), ("attention", {})]
)
def test_a_listed_factory_is_trained(
    package: Path, factory: str, arguments: dict[str, int], tmp_path: Path
) -> None:
    """Through policy, ledger and wire; and what it learned is a model that scores records."""
    plan = plan_of(package, factory, **arguments)
    terms = TrainingTerms.of(plan.terms)
    network = terms.network()
    start = network.first_weights()
    features, labels = people(300, 1)
    owner = rows(300, features, labels, tmp_path / "owner", policy=allowed(plan))
    found = answer(owner, plan, start, 0)
    assert found.code == wire.Code.OK
    learned = np.frombuffer(wire.Weights.FromString(found.batch.body).weights, dtype="<f4")
    assert not np.array_equal(learned, start)
    session = Model.of(to_onnx(network, learned.copy(), centre=terms.centre)).open()
    session.accept((4,), 3)
    scored = np.zeros((300, 3), dtype=np.float32)
    session.each(features, scored)
    assert np.allclose(scored.sum(axis=1), 1, atol=1e-5)


def test_a_factory_that_is_not_listed_is_not_imported(package: Path, tmp_path: Path) -> None:
    """Neither by the owner nor by reading the plan."""
    plan = plan_of(package, "plain")
    for loaded in [module for module in sys.modules if module.split(".")[0] == package.name]:
        del sys.modules[loaded]
    assert code_of(plan, LEARNS, tmp_path / "owner") == wire.Code.CODE_NOT_ALLOWED
    listed = f"{package.name}.models:plain", "{}", bytes(32)
    other = replace(LEARNS, architectures=frozenset({listed}))
    assert code_of(plan, other, tmp_path / "other") == wire.Code.CODE_NOT_ALLOWED
    assert package.name not in sys.modules


@pytest.mark.parametrize("change", ["another file", "new file", "content"])
def test_a_changed_package_is_refused(package: Path, change: str, tmp_path: Path) -> None:
    """The files that are there now must be those that plan and policy name."""
    plan = plan_of(package, "plain")
    if change == "content":
        (package / "models.py").write_text(SOURCE + "\n")
    else:
        (package / ("weights.bin" if change == "new file" else "helper.py")).write_text("x = 1\n")
    assert code_of(plan, allowed(plan), tmp_path / "owner") == wire.Code.CODE_NOT_ALLOWED


def test_bytecode_is_not_part_of_a_package(package: Path) -> None:
    """Importing writes it, and must not change the digest."""
    before = source_digest(f"{package.name}.models:plain")
    importlib.import_module(f"{package.name}.models")
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__" / "models.cpython-311.pyc").write_bytes(b"x")
    assert source_digest(f"{package.name}.models:plain") == before


@pytest.mark.parametrize("name", ["__pycache__/hidden.py", "__pycache__/hidden.pyc"])
def test_files_that_can_be_imported_are_part_of_a_package(package: Path, name: str) -> None:
    """In a folder of bytecode, too."""
    before = source_digest(f"{package.name}.models:plain")
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / name).write_text("x = 1\n")
    assert source_digest(f"{package.name}.models:plain") != before


def test_files_behind_a_link_are_part_of_a_package(package: Path, tmp_path: Path) -> None:
    """A link to a folder is followed, and one to the package itself ends."""
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "nets.py").write_text("x = 1\n")
    (package / "linked").symlink_to(other)
    (package / "again").symlink_to(package)
    before = source_digest(f"{package.name}.models:plain")
    (other / "nets.py").write_text("x = 2\n")
    assert source_digest(f"{package.name}.models:plain") != before


def test_a_package_in_a_folder_of_any_name_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "__pycache__"
    folder.mkdir()
    for package in installed(folder, monkeypatch):
        before = source_digest(f"{package.name}.models:plain")
        (package / "models.py").write_text(SOURCE + "\n")
        assert source_digest(f"{package.name}.models:plain") != before


def test_bytecode_that_came_with_a_package_does_not_run(package: Path) -> None:
    """Python would take it unchecked in place of the file that was hashed."""
    fake, source = package.parent / "fake.py", package / "models.py"
    fake.write_text(SOURCE.replace("hidden=5", "hidden=6"))
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    cached = importlib.util.cache_from_source(str(source))
    py_compile.compile(str(fake), cfile=cached, invalidation_mode=mode)
    terms = described(f"{package.name}.models:plain", features=4, outputs=3)
    assert terms["size"] == 5 * (4 + 1) + 3 * (5 + 1)


@pytest.mark.parametrize("factory", ["mixing", "batch_norm"])
def test_a_factory_that_mixes_records_is_refused(
    package: Path, factory: str, tmp_path: Path
) -> None:
    """Although the owner listed it: one record would speak through the gradients of all."""
    plan = plan_of(package, factory)
    assert code_of(plan, allowed(plan), tmp_path / "owner") == wire.Code.CODE_NOT_ALLOWED


def test_nothing_is_charged_for_a_refused_network(package: Path, tmp_path: Path) -> None:
    plan = plan_of(package, "mixing")
    features, labels = people(60, 1)
    owner = rows(60, features, labels, tmp_path / "owner", policy=allowed(plan))
    start = np.zeros(TrainingTerms.of(plan.terms).size, dtype=np.float32)
    assert answer(owner, plan, start, 0).code == wire.Code.CODE_NOT_ALLOWED
    assert owner._ledger.campaigns() == []


@pytest.mark.parametrize(
    ("weights", "code"),
    [
        (np.zeros(3, dtype=np.float32), wire.Code.MALFORMED),
        (np.full(43, np.nan, dtype=np.float32), wire.Code.OUT_OF_ALPHABET),
        (np.full(43, np.inf, dtype=np.float32), wire.Code.OUT_OF_ALPHABET),
    ],
)
def test_wrong_weights_are_refused(package: Path, weights: Any, code: int, tmp_path: Path) -> None:
    plan = plan_of(package, "plain")
    assert code_of(plan, allowed(plan), tmp_path / "owner", weights) == code


def test_a_factory_runs_with_the_arguments_that_its_owner_allowed(
    package: Path, tmp_path: Path
) -> None:
    """By command: an aggregator that may choose them chooses time and memory of the owner, too."""
    name = f"{package.name}.models:plain"
    place, records = home(tmp_path, **CLAUSES), written_people(tmp_path / "records.npz", crowd(0.9))
    code, shown = client("allow", "architecture", f"{name} hidden=3", "--home", place, "--yes")
    assert (code, '{"hidden":3}' in shown) == (0, True)
    assert Home(place).policy().vetted_architectures == frozenset()
    assert client("allow", "architecture", "linear", "--home", place, "--yes")[0] == 2
    for _ in range(2):
        several = f"{name} hidden=5,3 kind=wide"
        assert client("allow", "architecture", several, "--home", place, "--yes")[0] == 0
    listed = {arguments for _, arguments, _ in Home(place).policy().architectures}
    assert listed == {'{"hidden":3}', '{"hidden":[5,3],"kind":"wide"}'}
    code, shown = client("allow", "architecture", several, "--vetted", "--home", place, "--yes")
    assert (code, "It will see many records at once" in " ".join(shown.split())) == (0, True)
    (trusted,) = Home(place).policy().vetted_architectures
    assert trusted[1] == '{"hidden":[5,3],"kind":"wide"}'
    codes = {}
    for text in (f"{name} hidden=4", name, f"{name} hidden=3"):
        forget(package.name)
        terms = replace(STEPS, **described(text, features=2, outputs=2))
        forget(package.name)
        query = TrainingQuery(terms, np.zeros(terms.size, dtype=np.float32))
        with Puppet(replace(NOW_TRAINING, terms=terms), query) as puppet:
            puppet.ask(place, records)
        codes[text] = puppet.codes, name.partition(":")[0] in sys.modules
    refused, trained = (["CODE_NOT_ALLOWED"], False), (["OK"], True)
    assert list(codes.values()) == [refused, refused, trained]
