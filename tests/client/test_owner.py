"""A data owner behind Flower's client app: what is read and scored again for a message."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from confide.client import owner
from confide.client.flower_app import app
from confide.client.home import Home
from confide.client.policy import list_in
from confide.client.records import score_cache
from confide.client.records.reader import read_records
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bits import BitQuery
from confide.protocol.models.model_file import Model
from confide.protocol.models.scorer import score
from confide.protocol.plan import digest, sign_plan, write_query
from confide.protocol.simulated.settings import CONTENT
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import ID_BYTES
from tests.support.networks.graphs import first_feature, written
from tests.support.owners.owners import KEY, PUBLIC
from tests.support.servers.servers import plan_now

N = 400


@dataclass
class Node:
    """A Flower node of one owner; it counts what is read and scored for its messages."""

    folder: Path
    counts: dict[str, int] = field(default_factory=lambda: {"read": 0, "opened": 0, "scored": 0})

    def __post_init__(self) -> None:
        self.home, self.records = Home(self.folder / "home"), self.folder / "records.npz"
        self.home.create()
        self.model, name = written(self.folder, first_feature())
        text = self.home.policy_file.read_text()
        for key, value in (("aggregators", PUBLIC), ("models", name)):
            text = list_in(text, key, value.hex())
        self.home.policy_file.write_text(text)
        self.plan = plan_now(labels=2, epsilon=1.0, model=name)
        self.write_records(N)

    def write_records(self, n: int, **more: Any) -> None:
        features = np.random.default_rng(1).random((n, 2))
        labels = np.zeros(n, dtype=np.int64)
        np.savez(self.records, ids=np.arange(n), labels=labels, features=features, **more)

    def ask(self, start: float, stop: float) -> wire.Answer:
        """Send the node a message with a query, as Flower does."""
        query = BitQuery(Bit(epsilon=1.0), start, stop, (0.5,))
        content = {
            "plan": sign_plan(self.plan, KEY),
            "query": write_query(query, plan=digest(self.plan.to_bytes()), round_=int(10 * start)),
        }
        asked = Message(
            RecordDict({CONTENT: ConfigRecord(cast(Any, content))}),
            dst_node_id=1,
            message_type="query",
        )
        node = {"home": self.home.folder, "records": self.records, "model": self.model}
        config: Any = {name: str(path) for name, path in node.items()}
        reply: Any = app(asked, Context(1, 1, config, RecordDict(), {}))
        return wire.Answer.FromString(reply.content[CONTENT]["answer"])

    def reports(self, start: float, stop: float) -> int:
        """How many records answer."""
        answer = self.ask(start, stop)
        assert answer.code == wire.Code.OK
        return len(answer.batch.ids) // ID_BYTES


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(tmp_path)
    # Flower makes messages within a run only.
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*given: Any, **named: Any) -> Any:
            made.counts[name] += 1
            return function(*given, **named)

        return count

    monkeypatch.setattr(owner, "read_records", counted("read", read_records))
    monkeypatch.setattr(Model, "read", staticmethod(counted("opened", Model.read)))
    monkeypatch.setattr(score_cache, "score", counted("scored", score))
    return made


def test_messages_of_one_process_share_an_opened_owner(node: Node) -> None:
    """Records and model are read once, the model is run once, and every record answers once."""
    assert sum(node.reports(start / 10, (start + 2) / 10) for start in (0, 2, 4, 6, 8)) == N
    assert node.counts == {"read": 1, "opened": 1, "scored": 1}
    assert node.home.ledger().spent_by_record() == (N, 1.0)


def test_a_new_process_finds_the_scores_on_disk(node: Node) -> None:
    """Opened again, as for every message of a SuperNode, an owner reads its files and does not run
    the model; without the folder of scores it does."""
    node.ask(0.0, 0.3)
    owner._kept.owner = None
    node.ask(0.3, 0.6)
    assert node.counts == {"read": 2, "opened": 2, "scored": 1}
    owner._kept.owner = None
    for path in node.home.scores_folder.iterdir():
        path.unlink()
    node.ask(0.6, 1.0)
    assert node.counts == {"read": 3, "opened": 3, "scored": 2}


def test_a_changed_file_of_records_is_read_again(node: Node) -> None:
    """Records that were added answer the next message."""
    first = node.reports(0.0, 0.5)
    node.write_records(N + N // 2)
    assert first + node.reports(0.5, 1.0) > N
    assert node.counts["read"] == 2


def test_a_changed_model_is_read_again(node: Node) -> None:
    """A model that was exchanged under the same name is not the one of the plan any more."""
    assert node.reports(0.0, 0.5)
    node.model.write_bytes(b"another")
    assert node.ask(0.5, 1.0).code == wire.Code.MODEL_NOT_ALLOWED
    assert node.counts["opened"] == 2


def test_a_changed_policy_holds_for_the_next_message(node: Node) -> None:
    """The policy is not kept: a lower limit refuses the next query of the same plan."""
    assert node.reports(0.0, 0.5)
    policy = node.home.policy_file.read_text()
    policy = policy.replace("epsilon_per_record = 4.0", "epsilon_per_record = 0.5")
    node.home.policy_file.write_text(policy)
    assert node.ask(0.5, 1.0).code == wire.Code.EPSILON_PER_RECORD
    assert node.counts["read"] == 1
    # A column that may leave is no feature any more, so the records are read again.
    node.home.policy_file.write_text(
        policy.replace("columns_may_leave = []", 'columns_may_leave = ["ward"]')
    )
    assert node.ask(0.5, 1.0).code == wire.Code.EPSILON_PER_RECORD
    assert node.counts["read"] == 2


def test_persons_that_another_process_noted_are_seen(node: Node) -> None:
    """Another process assigns all records to one person: for the next message that person answers,
    and has spent already."""
    assert node.reports(0.0, 0.5)
    other = node.home.ledger()
    # As `register` does with a file that names persons.
    names = [row[0] for row in other._db.execute("SELECT record FROM known")]
    other.admit(names, [b"anna"] * len(names))
    assert node.ask(0.5, 1.0).code == wire.Code.GROUP_TOO_SMALL
    assert node.counts["read"] == 2


def test_every_thread_has_an_owner_of_its_own(node: Node) -> None:
    """A connection to the ledger is not shared between threads; answers are right on each."""
    found = [node.reports(0.0, 0.5)]
    thread = threading.Thread(target=lambda: found.append(node.reports(0.5, 1.0)))
    thread.start()
    thread.join()
    assert sum(found) == N
    assert node.counts["read"] == 2
