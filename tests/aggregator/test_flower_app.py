import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from threadpoolctl import threadpool_limits

from confide.aggregator import flower_app
from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.planning.run_plans import Plans
from confide.aggregator.flower_messages import Asking, read_reply
from confide.protocol.errors import BadInput
from confide.protocol.plan import Plan
from confide.protocol.simulated.settings import CONTENT
from confide.simulation.defaults import run_defaults
from tests.support.networks.factories import installed
from tests.support.programs.federations import CAMPAIGNS
from tests.support.repository.places import ROOT


def test_a_server_app_gives_no_work_to_threads_that_a_fork_stops() -> None:
    """Ray forks while the ServerApp works. That stops the threads of OpenBLAS, and whoever waits
    for one waits for ever. Here a fork stops them as the app begins, and until the first query goes
    out none was started again; a product would start one."""
    done = subprocess.run(
        [sys.executable, "-c", FORKED, CAMPAIGNS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    *campaigns, product = done.stdout.splitlines()
    assert campaigns == ["1"] * len(CAMPAIGNS.split())
    assert product == "2" or os.cpu_count() == 1


FORKED = """
import os, sys
import dp_accounting.rdp, dp_accounting.pld.privacy_loss_distribution
import numpy as np
from flwr.supercore.task_identity import TaskIdentity
from threadpoolctl import threadpool_limits
from confide.aggregator import flower_app
from confide.simulation.defaults import run_defaults

def fork():
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)

def say():
    print(len(os.listdir("/proc/self/task")))

class Run:
    run_id = 1
    @property
    def run_config(self):
        fork()
        given = {"epsilon": 4.0, "privacy-delta": 1e-5, "records": 6_000, "campaigns": campaign}
        return run_defaults() | given

class Grid:
    def get_node_ids(self):
        return [1, 2, 3]
    def push_messages(self, messages):
        say()
        raise LookupError

TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
for campaign in sys.argv[1].split():
    try:
        flower_app.main(Grid(), Run())
    except LookupError:
        pass
threadpool_limits(2, user_api="blas")
fork()
np.ones((500, 500)) @ np.ones((500, 500))
say()
"""


@pytest.mark.parametrize(
    ("code", "found"), [(2, b"\xff"), (3, None), (4, None), (5, None), (8, b"\xff")]
)
def test_who_did_not_answer_is_missing_and_who_failed_is_malformed(
    code: int, found: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower tells of a node that is gone as of one that raised; only the second has answered
    something."""
    # Flower makes messages within a run only.
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    asked = Message(RecordDict(), dst_node_id=1, message_type="query")
    assert read_reply(Message(Error(code=code, reason="why"), reply_to=asked)) == found


class Trickling:
    """A grid of three nodes: one answers at the first look, one at the second, one never."""

    def __init__(self) -> None:
        self.pushed: list[Any] = []
        self.looked: list[set[str]] = []

    def push_messages(self, messages: Any) -> list[str]:
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = str(number)
            self.pushed.append(message)
        return [message.metadata.message_id for message in self.pushed]

    def pull_messages(self, names: Any) -> list[Message]:
        self.looked.append(set(names))
        said: dict[str, Any] = {"answer": b"answer", "owner": 4}
        answers = RecordDict({CONTENT: ConfigRecord(said)})
        return [
            Message(answers, reply_to=message)
            for message in self.pushed[: len(self.looked)][:2]
            if message.metadata.message_id in names
        ]


def test_answers_are_taken_as_they_come_until_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who has answered is looked for again, and who never answers costs the timeout."""
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    grid = Trickling()
    began = time.monotonic()
    asking = Asking(cast(Any, grid), [5, 6, 7], {"plan": b""}, timeout=0.5)
    answers = asking(b"query")
    assert next(iter(answers)) == Sent((5).to_bytes(8, "big"), b"answer")
    assert len(grid.looked) == 1
    assert [sent.sender for sent in answers] == [(6).to_bytes(8, "big")]
    # Nodes of a simulation say their number.
    assert asking.owners == {node.to_bytes(8, "big"): 4 for node in (5, 6)}
    assert time.monotonic() - began >= 0.5
    assert grid.looked[:3] == [{"0", "1", "2"}, {"1", "2"}, {"2"}]


def make_plans(config: dict[str, Any], *, run: int) -> dict[str, Plan]:
    plans = Plans(config, run=run, owners=3)
    return {name: plans.make(name) for name in plans.names}


def test_plans_of_a_seed_are_the_same_in_every_run() -> None:
    """With a seed a plan's bytes depend on the settings alone; without, every run has plans of its
    own. Deployments draw afresh and name their model."""
    config = run_defaults() | {"campaigns": "bits:certified central:trusted labels:certified"}
    seeded = [make_plans(config | {"seed": 1}, run=run) for run in (1, 2)]
    assert seeded[0] == seeded[1]
    free = [make_plans(config, run=run) for run in (1, 2)]
    assert all(free[0][name].to_bytes() != free[1][name].to_bytes() for name in free[0])
    deployed = config | {"key-file": "aggregator.key"}
    with pytest.raises(BadInput, match="model is ''; accepted is the SHA-256"):
        make_plans(deployed, run=1)
    with pytest.raises(BadInput, match="shuffler is 'key', and nodes answer to a SuperLink"):
        make_plans(config | {"shuffler": "key"}, run=1)
    with pytest.raises(BadInput, match="seed is 1 with a key-file"):
        make_plans(deployed | {"seed": 1}, run=1)
    assert (
        make_plans(deployed | {"model": "ab" * 32}, run=1)["bits:certified"].model == b"\xab" * 32
    )


@pytest.mark.parametrize(
    ("campaigns", "given"),
    [
        ("labels:certified central:trusted", {"mixture": "planned"}),
        ("pairs:class-conditional bits:per-owner", {"guarantee": "marginal"}),
        ("labels:certified", {"joint": True}),
    ],
)
def test_a_promise_that_no_campaign_of_a_run_makes_is_refused(
    campaigns: str, given: dict[str, Any]
) -> None:
    """A run configuration has every setting; with one campaign that makes the promise it passes."""
    config = run_defaults() | {"campaigns": campaigns} | given
    with pytest.raises(BadInput, match=f"{next(iter(given))} is given, which .* does not use"):
        make_plans(config, run=1)
    more = {"campaigns": f"{campaigns} bits:certified labels:class-conditional"}
    assert len(make_plans(config | more, run=1)) >= 3


def test_a_chain_that_owners_would_decline_is_refused_before_anybody_pays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A factory's model, and campaigns of labels, need a model that is listed, after the training.
    A training alone has plans."""
    own = run_defaults() | {"train-share": 0.5}
    with pytest.raises(BadInput, match="owners have to list"):
        make_plans(own | {"campaigns": "training:federated-averaging labels:certified"}, run=1)
    for package in installed(tmp_path, monkeypatch):
        network = {"architecture": f"{package.name}.models:plain"}
        config = own | network | {"campaigns": "training:federated-averaging"}
        assert set(make_plans(config, run=1)) == {"training:federated-averaging"}
        chain = config | {"campaigns": "training:federated-averaging central:trusted"}
        with pytest.raises(BadInput, match="owners have to list"):
            make_plans(chain, run=1)


class Silent:
    """A grid of one node that tells whether anybody was asked."""

    asked = 0

    def get_node_ids(self) -> list[int]:
        return [1]

    def push_messages(self, messages: Any) -> Any:
        self.asked += 1
        raise LookupError


@dataclass(frozen=True)
class Configured:
    run_config: dict[str, Any]
    run_id: int = 1


@pytest.mark.parametrize("output", ["file", "file/inside", "relative", "missing/folder"])
def test_a_result_has_a_place_before_anybody_is_asked(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is missing is made, and one that cannot be is refused, while no budget is spent
    yet."""
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    (tmp_path / "file").touch()
    grid, path = Silent(), output if output == "relative" else str(tmp_path / output)
    run: Any = Configured(run_defaults() | {"output": path})
    accepted = output == "missing/folder"
    with (
        threadpool_limits(),
        pytest.raises(
            LookupError if accepted else BadInput, match=None if accepted else "output is '"
        ),
    ):
        flower_app.main(cast(Any, grid), run)
    assert grid.asked == accepted
    assert (tmp_path / "missing/folder").is_dir() == accepted


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architecture": "head"}, "simulated owners hold none"),
        ({"backbone": "nowhere.onnx"}, "backbone is 'nowhere.onnx', which cannot be read"),
        ({"backbone": __file__}, "a backbone is given, and the network has none"),
    ],
)
def test_a_model_that_could_not_be_exported_is_not_trained(
    changes: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked for a training whose backbone is missing, unreadable or not used."""
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    grid = Silent()
    training = {"campaigns": "training:federated-averaging"}
    run: Any = Configured(run_defaults() | training | changes)
    with threadpool_limits(), pytest.raises(BadInput, match=words):
        flower_app.main(cast(Any, grid), run)
    assert grid.asked == 0


def test_a_chain_may_calibrate_on_the_records_that_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All plans are checked beforehand, those of a trained model too; then owners are asked."""
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    grid, campaigns = Silent(), "training:federated-averaging full-data:certified"
    run: Any = Configured(run_defaults() | {"campaigns": campaigns, "train-share": 0.5})
    with threadpool_limits(), pytest.raises(LookupError):
        flower_app.main(cast(Any, grid), run)
    assert grid.asked == 1
