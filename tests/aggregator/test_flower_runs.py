"""Runs that train, on a grid whose owners answer in this process: what ends early, and goes on."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from threadpoolctl import threadpool_limits

from confide.aggregator import flower_app
from confide.aggregator.campaigns.driver import TooFewReports
from confide.aggregator.keys import create_keys, read_key
from confide.client.home import Home
from confide.client.owner import open_owner
from confide.protocol.cards.card import read_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.certificate import BAND, MARGINAL
from confide.protocol.errors import BadInput
from confide.protocol.plan import Plan
from confide.protocol.simulated.settings import CONTENT, EMBEDDED_MODEL
from confide.protocol.wire import wire_pb2 as wire
from confide.simulation.defaults import run_defaults
from tests.support.programs.deployments import write_owner
from tests.support.servers.servers import client

OWNERS, EACH = 2, 400
GUARANTEES = {
    MARGINAL: "labels:certified bits:certified",
    BAND: "labels:certified bits:one-shot",
}


@dataclass
class Nodes:
    """A grid of owners, which breaks down after the first answer to a campaign of this name."""

    folder: Path
    stop: str = "never"
    asked: list[str] = field(default_factory=list)
    replies: list[Message] = field(default_factory=list)

    def get_node_ids(self) -> list[int]:
        return list(range(OWNERS))

    def push_messages(self, messages: Any) -> list[str]:
        for message in messages:
            given, node = message.content[CONTENT], message.metadata.dst_node_id
            plan = Plan.from_bytes(wire.SignedPlan.FromString(given["plan"]).plan)
            self.asked.append(plan.campaign.split()[0])
            records = self.folder / f"records{node}.npz"
            owner = open_owner(Home(self.folder / f"home{node}"), records, given.get("model"))
            answer = owner.answer(given["plan"], given["query"])
            if self.asked[-1] == self.stop:
                raise ConnectionError
            message.metadata.__dict__["_message_id"] = str(node)
            content = RecordDict({CONTENT: ConfigRecord({"answer": answer})})
            self.replies.append(Message(content, reply_to=message))
        return [reply.metadata.reply_to_message_id for reply in self.replies]

    def pull_messages(self, names: Any) -> list[Message]:
        found, self.replies = self.replies, []
        return found


@dataclass(frozen=True)
class Started:
    run_config: dict[str, Any]
    run_id: int


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the aggregator's key and two owners."""
    for name in ("_run_id", "_task_id", "_node_id"):
        # Flower makes messages within a run only.
        monkeypatch.setattr(TaskIdentity, name, 1)
    create_keys(tmp_path, address="127.0.0.1", now=datetime.now(UTC))
    public = read_key(tmp_path / "aggregator.key").public_key().public_bytes_raw()
    for number in range(OWNERS):
        write_owner(tmp_path, number, np.arange(EACH) + number * EACH, public)
    with threadpool_limits():
        yield tmp_path


def run(nodes: Nodes, number: int, calibration: str = "central:trusted", **settings: Any) -> None:
    config = run_defaults() | {
        "campaigns": f"training:federated-averaging {calibration}",
        "records": OWNERS * EACH,
        "minimum-reports": 10,
        "train-share": 0.5,
        "rounds": 2,
        "averaged-rounds": 1,
        "output": str(nodes.folder / "out"),
        "key-file": str(nodes.folder / "aggregator.key"),
    }
    started: Any = Started(config | settings, number)
    flower_app.main(cast(Any, nodes), started)


def digest_of(folder: Path) -> str:
    model = folder / "out" / "training-federated-averaging.onnx"
    return hashlib.sha256(model.read_bytes()).hexdigest()


def check_card(folder: Path, name: str, *, model: str, training: float) -> None:
    """The card of a calibration verifies, and is of this model and the training's epsilon."""
    card = read_card(folder / "out" / f"{name}.card.json")
    public = read_key(folder / "aggregator.key").public_key().public_bytes_raw()
    assert [found.clause for found in verify(card, key=public) if not found.holds] == []
    assert card.formal["released"]["model"] == model
    assert 0.9 * training < card.formal["chain"]["epsilon_train"] <= training


def spent(folder: Path, number: int) -> list[tuple[int, float]]:
    ledger = Home(folder / f"home{number}").ledger()
    return [(campaign.queries, campaign.epsilon) for campaign in ledger.campaigns()]


def test_a_calibration_that_ended_early_is_asked_again_and_the_training_is_not(place: Path) -> None:
    """The link broke after one owner had answered the calibration. Started again, the run makes the
    same plan of it for the same model: nobody pays twice, and then nothing is kept."""
    first, again = Nodes(place, stop="central:trusted"), Nodes(place)
    with pytest.raises(ConnectionError):
        run(first, 1)
    assert (place / "out" / "unfinished" / "model.onnx").is_file()
    with pytest.raises(BadInput, match="of a run with other settings: epsilon"):
        run(Nodes(place), 2, epsilon=1.0)
    run(again, 3)
    training, calibration = "training:federated-averaging", "central:trusted"
    assert first.asked == [training] * 4 + [calibration]
    assert again.asked == [calibration] * 2
    assert [spent(place, number) for number in range(OWNERS)] == [[(2, 2.0), (1, 2.0)]] * OWNERS
    card = read_card(place / "out" / "central-trusted.card.json")
    assert [found.clause for found in verify(card) if not found.holds] == []
    assert not (place / "out" / "unfinished").exists()


def test_a_model_that_owners_list_is_waited_for(place: Path) -> None:
    """Labels show probabilities of the trained model. `listed` is refused before there is a model,
    and where none has to be listed."""
    with pytest.raises(BadInput, match="holds no trained model that waits"):
        run(Nodes(place), 1, "labels:certified", listed=True)
    with pytest.raises(BadInput, match="owners need not list a model"):
        run(Nodes(place), 1, listed=True)
    with pytest.raises(BadInput, match="owners have to list"):
        run(Nodes(place), 1, "labels:certified", output="")
    nodes = Nodes(place)
    run(nodes, 1, "labels:certified")
    assert set(nodes.asked) == {"training:federated-averaging"}
    with pytest.raises(TooFewReports, match="MODEL_NOT_ALLOWED 2"):
        run(nodes, 2, "labels:certified", listed=True)
    assert [len(spent(place, number)) for number in range(OWNERS)] == [1, 1]
    assert (place / "out" / "unfinished").is_dir()
    name = digest_of(place)
    for number in range(OWNERS):
        listed = client("allow", "model", name, "--home", place / f"home{number}", "--yes")
        assert listed[0] == 0
    run(Nodes(place), 3, "labels:certified", listed=True)
    check_card(place, "labels-certified", model=name, training=2.0)
    assert [spent(place, number) for number in range(OWNERS)] == [[(2, 2.0), (1, 2.0)]] * OWNERS


def test_a_chain_of_numbers_ends_in_cards(place: Path) -> None:
    """Owners of targets train a network within a public range, and calibrate its intervals by
    counts and by bits."""
    for number in range(OWNERS):
        rng = np.random.default_rng(number)
        features = rng.random((EACH, 16))
        targets = 30 + 40 * features[:, 0] + rng.normal(0, 1, EACH)
        ids = np.arange(EACH) + number * EACH
        np.savez(place / f"records{number}.npz", features=features, targets=targets, ids=ids)
    range_of_targets = {"target-low": 20.0, "target-high": 80.0, "labels": 0}
    score = {"score": "absolute-residual bound=60"}
    run(Nodes(place), 1, "central:trusted bits:certified", **range_of_targets, **score)
    about = json.loads((place / "out" / "training-federated-averaging.json").read_text())
    assert (about["terms"]["target_low"], about["terms"]["target_high"]) == (20.0, 80.0)
    for name in ("central-trusted", "bits-certified"):
        check_card(place, name, model=digest_of(place), training=2.0)


@pytest.mark.parametrize(("guarantee", "campaigns"), GUARANTEES.items())
def test_averages_and_bands_of_a_run_end_in_cards(
    place: Path, guarantee: str, campaigns: str
) -> None:
    """`guarantee` of the run configuration reaches plans, certificates and cards of every method
    that has it."""
    config: dict[str, Any] = {"model": EMBEDDED_MODEL.hex(), "train-share": 0.0}
    config |= {"guarantee": guarantee, "campaigns": campaigns}
    run(Nodes(place), 1, **config)
    for name in campaigns.replace(":", "-").split():
        card = read_card(place / "out" / f"{name}.card.json")
        assert [found.clause for found in verify(card) if not found.holds] == []
        assert card.formal["contract"]["kind"] == card.formal["certificate"]["kind"] == guarantee
        assert len(card.formal["certificate"]["levels"]) > 10
        assert ("band" in card.formal["released"]) == (guarantee == BAND)
        row = json.loads((place / "out" / f"{name}.json").read_text())
        assert (row["kind"], len(row["levels"]) > 10) == (guarantee, True)


def test_a_training_without_owners_is_over(place: Path) -> None:
    """Its rounds would fail again, so nothing is kept of it."""
    for number in range(OWNERS):
        policy = Home(place / f"home{number}").policy_file
        policy.write_text(policy.read_text().replace('"training", ', ""))
    with pytest.raises(TooFewReports, match="no owner took part"):
        run(Nodes(place), 1)
    assert not (place / "out" / "unfinished").exists()
