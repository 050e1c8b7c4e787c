"""Records with several true labels, or with losses of their owner's: files, and answers on them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from confide.client.records.reader import read_records
from confide.protocol.channels.bit import Bit
from confide.protocol.errors import BadInput
from confide.protocol.methods.bits import BitQuery, BitTerms
from confide.protocol.scores.task import MULTI_LABEL, OWN_LOSS, Task
from confide.protocol.wire import wire_pb2 as wire
from tests.support.owners.boundary import PLAN, SURE, home
from tests.support.owners.hostile import Puppet
from tests.support.owners.owners import changed

N = 300
LOSSES = [1.0, 0.25, 0.0, 0.0]


def table(kind: Task) -> dict[str, list[Any]]:
    if kind == OWN_LOSS:
        return {"id": [1, 2], "loss1": [0.5, 1.0], "loss2": [0.25, 0.0]}
    flags = {"true0": [1, 0], "true1": [1, 0]}
    return {"id": [1, 2], "p0": [0.5, 0.25], "p1": [0.75, 0.0], **flags}


@pytest.mark.parametrize("kind", [MULTI_LABEL, OWN_LOSS])
@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_every_format_holds_the_same_records(kind: Task, ending: str, tmp_path: Path) -> None:
    path, rows = tmp_path / f"records{ending}", table(kind)
    if ending == ".csv":
        lines = [
            ",".join(rows),
            *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True)),
        ]
        path.write_text("\n".join(lines) + "\n")
    elif ending == ".parquet":
        pq.write_table(pa.table(rows), path)
    elif kind == OWN_LOSS:
        np.savez(path, ids=rows["id"], losses=np.array([rows["loss1"], rows["loss2"]]).T)
    else:
        probs, flags = (np.array([rows[f"{n}0"], rows[f"{n}1"]]).T for n in ("p", "true"))
        np.savez(path, ids=rows["id"], probs=probs, true_labels=flags)
    found = read_records(path)
    assert found.task == kind
    truth = [[True, True], [False, False]] if kind == MULTI_LABEL else [[0.5, 0.25], [1.0, 0.0]]
    assert found.truth.tolist() == truth
    assert found.results is not None
    assert found.results.shape == (2, 2 if kind == MULTI_LABEL else 0)


@pytest.mark.parametrize(
    ("header", "row", "words"),
    [
        ("id,p0,p1,true0,true1", "1,0.5,0.5,1,2", "something else than 0 and 1"),
        ("id,p0,p1,true0,true1", "1,0.5,1.5,1,0", "a probability for each label"),
        ("id,p0,p1,true0,true1,loss1", "1,0.5,0.5,1,0,1", "together: true_labels, losses"),
    ],
)
def test_what_cannot_be_used_is_refused(header: str, row: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text(f"{header}\n{row}\n")
    with pytest.raises(BadInput, match=words):
        read_records(tmp_path / "records.csv")


def test_losses_are_answered_without_a_model(tmp_path: Path) -> None:
    """By the real command: at 1/2 all bits but those of records whose number is below 1/4 are one.

    The channel tells the truth with probability 1 - 2e-9. The share 3/4 of 300 records has a
    standard deviation of 0.025; further off than 0.15 it is with probability below 1e-8.
    """
    terms = BitTerms(variant="certified", epsilon=SURE, delta=0.1)
    plan = changed(PLAN, score="own-loss values=4", labels=0, terms=terms)
    place, path = home(tmp_path, plan.model), tmp_path / "records.npz"
    np.savez(path, ids=np.arange(N), losses=np.tile(LOSSES, (N, 1)))
    with Puppet(plan, BitQuery(Bit(epsilon=SURE), 0.0, 1.0, (0.5,))) as puppet:
        assert puppet.ask(place, path) == 0
    bits = wire.BitReports.FromString(puppet.answers[0].batch.body).reports
    share = np.unpackbits(np.frombuffer(bits, dtype=np.uint8)).sum() / N
    assert abs(share - 0.75) < 0.15


def test_labels_do_not_fit_a_plan_of_a_risk(tmp_path: Path) -> None:
    """A file with one label a record is not answered from, and its owner is told why."""
    plan, path = changed(PLAN, score="false-negatives", labels=2), tmp_path / "records.npz"
    probs = np.full((N, 2), 0.5, dtype=np.float32)
    np.savez(path, ids=np.arange(N), labels=np.zeros(N, dtype=int), probs=probs)
    with Puppet(plan, BitQuery(Bit(epsilon=SURE), 0.0, 1.0, (0.5,))) as puppet:
        puppet.ask(home(tmp_path, plan.model), path)
    assert "OK" not in puppet.codes
