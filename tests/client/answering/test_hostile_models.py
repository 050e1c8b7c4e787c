"""Models by which a hostile aggregator would read an owner's records, against the real command."""

import io
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.client.home import Home
from confide.client.owner import open_owner
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.methods.counts.queries import CountQuery, HistogramQuery
from confide.protocol.methods.labels.query import LabelQuery
from confide.protocol.plan import Plan
from confide.protocol.privacy.zcdp import search_variance
from confide.protocol.wire import wire_pb2 as wire
from tests.support.networks.graphs import (
    copying,
    ending,
    external,
    failing,
    first_feature,
    not_a_number,
    slow_to_open,
    written,
)
from tests.support.owners.boundary import HALF, LABELS, PLAN, SURE, N, crowd, home, people
from tests.support.owners.hostile import Puppet
from tests.support.owners.owners import changed, channel_of
from tests.support.repository.places import ROOT
from tests.support.servers.servers import client


def ones(answer: wire.Answer) -> int:
    reports = wire.BitReports.FromString(answer.batch.body).reports
    return int(np.unpackbits(np.frombuffer(reports, dtype=np.uint8)).sum())


def counts_of(answer: wire.Answer) -> NDArray[np.int64]:
    return np.frombuffer(wire.Counts.FromString(answer.batch.body).counts, dtype="<i8")


def test_no_record_speaks_through_another(tmp_path: Path) -> None:
    """1. A model that copies one row to all rows: two files that differ in one record differ in one
    bit, and in one count.

    At epsilon 20 a bit is flipped with probability 2e-9; noised counts have a standard deviation
    below 20.
    """
    path, name = written(tmp_path, copying())
    noise = search_variance(bins=4, epsilon=SURE, delta=1e-6)
    counts = replace(
        PLAN,
        terms=CentralTerms(
            variant="owner-noised",
            mechanism="gaussian-search",
            epsilon=SURE,
            bins=4,
            beta=0.01,
            privacy_delta=1e-6,
            noise_variance=noise,
        ),
    )
    trusted = changed(
        counts,
        variant="trusted",
        mechanism="rank-exponential",
        privacy_delta=0.0,
        noise_variance=0,
    )
    seen: dict[str, list[Any]] = {"bits": [], "count": [], "exact": []}
    allowed = {"methods": '["bits", "central"]', "exact_counts_may_leave": "true"}
    for number, first in enumerate((0.9, 0.1)):
        folder = tmp_path / str(number)
        folder.mkdir()
        records = people(folder / "records.npz", crowd(first))
        questions: dict[str, tuple[Plan, Any]] = {
            "bits": (PLAN, HALF),
            "count": (counts, CountQuery(0.5, noise)),
            "exact": (trusted, HistogramQuery(4)),
        }
        for kind, (plan, query) in questions.items():
            place = home(
                folder / kind, name, **allowed, delta_per_record="0.5", delta_per_campaign="0.5"
            )
            with Puppet(changed(plan, model=name), query) as puppet:
                assert puppet.ask(place, records, "--model", path) == 0
            (answer,) = puppet.answers
            assert answer.code == wire.Code.OK
            seen[kind].append(ones(answer) if kind == "bits" else counts_of(answer))
    assert abs(seen["bits"][0] - seen["bits"][1]) == 1
    assert abs(int(seen["count"][0][1]) - int(seen["count"][1][1])) < N / 2
    assert np.abs(seen["exact"][0] - seen["exact"][1]).sum() == 2


class Payload:
    """Code that a pickle runs when it is read."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (self.mark,)


def test_a_torch_program_is_not_opened(tmp_path: Path) -> None:
    """2. An exported program with code in its sample inputs: `doctor` and `contribute` refuse it,
    and nothing of it runs."""
    torch = pytest.importorskip("torch")
    mark, path, buffer = tmp_path / "mark", tmp_path / "model.pt2", io.BytesIO()
    torch.export.save(
        torch.export.export(torch.nn.Softmax(1), (torch.zeros(2, 2),)), tmp_path / "good.pt2"
    )
    torch.save(Payload(str(mark)), buffer)
    with zipfile.ZipFile(tmp_path / "good.pt2") as good, zipfile.ZipFile(path, "w") as bad:
        for entry in good.namelist():
            bad.writestr(entry, buffer.getvalue() if "sample_inputs" in entry else good.read(entry))
    name = written(tmp_path, path.read_bytes(), "model.pt2")[1]
    place, records = home(tmp_path, name), people(tmp_path / "records.npz", crowd(0.9))
    code, shown = client("doctor", "--home", place, "--records", records, "--model", path)
    assert (code, "export it to .onnx" in shown) == (1, True)
    with Puppet(changed(PLAN, model=name), HALF) as puppet:
        assert puppet.ask(place, records, "--model", path) == 2
    assert puppet.answers == []
    assert not mark.exists()


def test_no_module_beside_a_model_is_imported(tmp_path: Path) -> None:
    """2. A model comes with files named like modules that its process imports, and the owner's
    command runs in their folder: none of them runs."""
    path, name = written(tmp_path, first_feature())
    for module in ("json", "mmap", "resource", "subprocess", "numpy", "onnx", "confide"):
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')")
    records, place = people(tmp_path / "records.npz", crowd(0.9)), home(tmp_path, name)
    command = [sys.executable, "-P", "-m", "confide.client"]
    installed = os.environ | {"PYTHONPATH": str(ROOT)}
    with Puppet(changed(PLAN, model=name), HALF) as puppet:
        for arguments in (
            ["doctor", "--home", place, "--records", records, "--model", path],
            puppet.options(place, records, "--model", path),
        ):
            ran = subprocess.run([*command, *map(str, arguments)], cwd=tmp_path, env=installed)
            assert ran.returncode == 0
    assert puppet.codes == ["OK"]
    assert not (tmp_path / "mark").exists()


def test_a_model_reads_no_file_beside_it(tmp_path: Path) -> None:
    """3. Weights that are the bytes of the records' file: refused, also where the digest is
    allowed; no answer leaves."""
    records = people(tmp_path / "records.npz", crowd(0.9))
    path, name = written(tmp_path, external("records.npz"))
    place = home(tmp_path, name)
    code, shown = client("doctor", "--home", place, "--model", path)
    assert (code, "kept outside the file" in shown) == (1, True)
    with Puppet(changed(PLAN, model=name), HALF) as puppet:
        assert puppet.ask(place, records, "--model", path) == 2
    assert puppet.answers == []
    one = open_owner(Home(place), records, path)
    assert (
        wire.Answer.FromString(one.answer(puppet.signed, puppet.query)).code == wire.Code.INTERNAL
    )
    assert Home(place).ledger().spent_by_record() == (0, 0.0)


def test_a_model_is_allowed_before_it_is_opened(tmp_path: Path) -> None:
    """By default no model may score; another file than the one allowed is refused by its digest,
    and is not parsed."""
    records = people(tmp_path / "records.npz", crowd(0.9))
    path, name = written(tmp_path, first_feature())
    place = home(tmp_path)
    with Puppet(changed(PLAN, model=name), HALF) as puppet:
        assert puppet.ask(place, records, "--model", path) == 1
        assert puppet.codes == ["MODEL_NOT_ALLOWED"]
        assert client("allow", "model", path, "--home", place, "--yes")[0] == 0
        path.write_bytes(b"not a model at all")
        assert puppet.ask(place, records, "--model", path) == 1
        assert puppet.codes[1:] == ["MODEL_NOT_ALLOWED"]
        path.write_bytes(first_feature())
        assert puppet.ask(place, records, "--model", path) == 0
        assert puppet.codes[2:] == ["OK"]


@pytest.mark.parametrize(
    "model", [not_a_number, failing, partial(ending, "Div"), partial(ending, "Mod")]
)
@pytest.mark.parametrize("method", ["bits", "labels"])
def test_no_failure_is_an_answer(model: Any, method: str, tmp_path: Path) -> None:
    """7. A model that fails, yields no number or ends its process on a property of a record: the
    answer is OK all the same."""
    path, name = written(tmp_path, model())
    plan: Plan = changed(PLAN, model=name)
    query: Any = HALF
    if method == "labels":
        plan = changed(plan, terms=LABELS)
        query = LabelQuery(channel_of(plan))
    codes = []
    for number, first in enumerate((0.9, 0.1)):
        place = home(
            tmp_path / str(number),
            name,
            methods='["bits", "labels"]',
            probabilities_may_leave="true",
        )
        with Puppet(plan, query) as puppet:
            puppet.ask(place, people(tmp_path / f"{number}.npz", crowd(first)), "--model", path)
        codes += puppet.codes
    assert codes == ["OK", "OK"]


@pytest.mark.parametrize("label", [7, -3])
@pytest.mark.parametrize("method", ["bits", "labels"])
def test_a_label_beyond_the_plan_is_not_told(label: int, method: str, tmp_path: Path) -> None:
    """7. The plan's author chooses the number of labels: a record that has none of them answers
    like the others."""
    path, name = written(tmp_path, first_feature())
    place = home(tmp_path, name, methods='["bits", "labels"]', probabilities_may_leave="true")
    labels = np.zeros(N, dtype=np.int64)
    labels[0] = label
    plan, query = changed(PLAN, model=name), HALF
    if method == "labels":
        plan = changed(plan, terms=LABELS)
    asked: Any = query if method == "bits" else LabelQuery(channel_of(plan))
    with Puppet(plan, asked) as puppet:
        puppet.ask(place, people(tmp_path / "records.npz", crowd(0.3), labels), "--model", path)
    assert puppet.codes == ["OK"]


def test_opening_a_model_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of a few kilobytes whose constants take hours to compute: `contribute` refuses it
    after the time of a call (here 2 seconds of 60)."""
    monkeypatch.setattr("confide.protocol.models.scorer.CALL_SECONDS", 2.0)
    data = slow_to_open(products=100)
    assert len(data) < 4_000
    path, name = written(tmp_path, data)
    place, records = home(tmp_path, name), people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(replace(PLAN, model=name), HALF) as puppet:
        assert puppet.ask(place, records, "--model", path) == 2
    assert puppet.answers == []


@pytest.mark.parametrize("sent", ["the plan's", "another", "none"])
@pytest.mark.parametrize("allowed", [True, False])
def test_a_model_that_the_aggregator_sends_is_the_plans_and_allowed(
    sent: str, allowed: bool, tmp_path: Path
) -> None:
    """An owner without the file fetches it, and runs it only if it is the file that the plan names
    and the policy lists; it asks for none that the policy does not."""
    path, name = written(tmp_path, first_feature())
    files = {"the plan's": path.read_bytes(), "another": copying()}
    records = people(tmp_path / "records.npz", crowd(0.9))
    place = home(tmp_path, name if allowed else bytes(32))
    with Puppet(replace(PLAN, model=name), HALF, model=files.get(sent)) as puppet:
        code, _ = client(*puppet.options(place, records))
    expected = {"the plan's": (0, ["OK"]), "another": (1, []), "none": (2, [])}[sent]
    assert (code, puppet.codes) == (expected if allowed else (1, ["MODEL_NOT_ALLOWED"]))
    assert puppet.fetched == allowed
