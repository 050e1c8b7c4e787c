"""Two SuperNodes over TLS, pinned to their bundle, and nodes that misbehave beside them."""

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import run_campaign, run_training
from confide.aggregator.keys import create_keys, read_key
from confide.client.home import Home
from confide.client.records.reader import read_records
from confide.client.respond import Respondent
from confide.client.transport.pinned_launcher import bundle_hash, pin
from confide.protocol.cards.card import read_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.plan import Plan, open_plan, query_digest
from confide.protocol.simulated.dealing import deal
from confide.protocol.simulated.embedded import predictions
from confide.simulation.federation.harness import free_port
from tests.support.networks.factories import write_package
from tests.support.owners.owners import asking
from tests.support.programs.deployments import (
    BACKBONE,
    BACKBONE_FILE,
    BEHAVIOURS,
    NODES,
    RECORDS,
    SITE,
    Running,
    answers,
    copy_checkout,
    kill_superlink,
    misbehave,
    outcome,
    restart_node,
    start_node,
    start_run,
    start_superlink,
    together,
    wait_for,
    write_owner,
)
from tests.support.servers.servers import client

# The owners' own choice: the first trains by Opacus.
ENGINES = ("hooks", "auto")


@pytest.fixture(scope="module")
def links() -> Iterator[Running]:
    """SuperLinks, which end after the nodes."""
    with together() as running:
        yield running


@pytest.fixture(scope="module")
def deployment(links: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A SuperLink over TLS with node authentication, two SuperNodes, and a run of one bits and
    one labels campaign."""
    folder = tmp_path_factory.mktemp("deployment")
    create_keys(folder, address="127.0.0.1", now=datetime.now(UTC))
    key = read_key(folder / "aggregator.key")
    _, labels = predictions()
    shares, *_ = deal(labels, owners=NODES, records=RECORDS, concentration=0, seed=1)
    own_bundle = bundle_hash(copy_checkout(folder / "checkout"))
    for number, share in enumerate(shares):
        write_owner(folder, number, share, key.public_key().public_bytes_raw())
        pin(folder / f"home{number}" / "launchers", [own_bundle])
    address = f"127.0.0.1:{free_port()}"
    (folder / "address").write_text(address)
    (folder / BACKBONE_FILE).write_bytes(BACKBONE.data)
    (folder / "out").mkdir()
    (folder / "cli").mkdir()
    own = f'[superlink.own]\naddress = "{address}"\nroot-certificates = "{folder}/ca.pem"\n'
    (folder / "cli" / "config.toml").write_text(f'[superlink]\ndefault = "own"\n\n{own}')
    with together() as running:
        start_superlink(links, folder)
        nodes = [
            start_node(running, folder, number, CONFIDE_ENGINE=engine)
            for number, engine in enumerate(ENGINES)
        ]
        wait_for(lambda: all(ready() for _, ready in nodes))
        # In three rounds: each costs every node a process.
        run = start_run(folder, "bits:certified labels:certified", smallest_owner=120)
        assert outcome(folder, run) == "finished:completed"
        yield folder


@pytest.mark.parametrize("name", ["bits-certified", "labels-certified"])
def test_supernodes_over_tls_give_the_threshold_of_their_own_ledgers(
    deployment: Path, name: str
) -> None:
    """Records answered over Flower; asked again in process, the ledgers repeat themselves to the
    same threshold."""
    row = json.loads((deployment / "out" / f"{name}.json").read_text())
    # Labels ask everybody; bits may be done before the last stage.
    assert row["n"] == RECORDS or name.startswith("bits")
    assert set(row["received"]) == {"OK"}
    assert row["randomness"] == "operating system"
    signed = bytes.fromhex(row["plan"])
    homes = [Home(deployment / f"home{number}") for number in range(NODES)]
    plan, _ = open_plan(signed, trusted=homes[0].policy().aggregators, now=datetime.now(UTC))
    owners = [
        Respondent(
            records=read_records(deployment / f"records{number}.npz"),
            policy=home.policy,
            ledger=home.ledger(),
            secret=home.secret(),
            entropy=os_entropy,
            now=lambda: datetime.now(UTC),
        )
        for number, home in enumerate(homes)
    ]
    again = run_campaign(plan, asking(signed, owners))
    assert again.certificate.threshold == row["threshold"]
    assert again.received == row["received"]


def test_each_owner_has_spent_what_it_answered(deployment: Path) -> None:
    """Two campaigns at epsilon 2: every record has answered, none has spent more than 4, and what
    was spent was sent."""
    for number in range(NODES):
        ledger = Home(deployment / f"home{number}").ledger()
        assert ledger.spent_by_record() == (RECORDS // NODES, 4.0)
        assert [campaign.unanswered for campaign in ledger.campaigns()] == [0, 0]


TRAINING: dict[str, Any] = {
    "train_share": 0.6,
    "rounds": 2,
    "batch": 300.0,
    "averaged_rounds": 1,
    "privacy_delta": 1e-6,
}


def test_supernodes_train_a_head_and_calibrate_it(deployment: Path, links: Running) -> None:
    """A chain over real SuperNodes, on a backbone that owners hold: the calibrated file is the
    trained one, which came with the queries, on the records that training left out and on those
    that trained; the cards verify with both costs, and the ledgers charged them so. One owner's
    gradients came from Opacus. The other's node is killed (SIGKILL) when its ledger has paid for
    the first round: it comes back for the others, and has paid once."""
    head: dict[str, Any] = {"architecture": "head", "features": 26, "model": BACKBONE.digest.hex()}
    head["backbone"] = str(deployment / BACKBONE_FILE)
    campaigns = "training:federated-averaging central:trusted full-data:certified"
    killed = Home(deployment / "home1")
    known = len(killed.ledger().campaigns())
    # Some rounds are over before the SuperLink takes the node again.
    run = start_run(deployment, campaigns, **TRAINING | {"rounds": 8}, **head)
    wait_for(lambda: len(killed.ledger().campaigns()) > known, 120)
    restart_node(links, deployment, 1)
    assert outcome(deployment, run) == "finished:completed"
    about = json.loads((deployment / "out" / "training-federated-averaging.json").read_text())
    answered = killed.ledger().campaigns()[known].queries
    assert 2 <= answered <= 8 < about["received"]["OK"] <= 8 + answered
    model = (deployment / "out" / "training-federated-averaging.onnx").read_bytes()
    for name in ("central-trusted", "full-data-certified"):
        card = read_card(deployment / "out" / f"{name}.card.json")
        assert [found.clause for found in verify(card) if not found.holds] == []
        assert card.formal["released"]["model"] == hashlib.sha256(model).hexdigest()
        # Training and full-data at 2 each: what records that trained pay in the whole chain.
        assert 3.9 < card.formal["chain"]["epsilon"] <= 4.0
    logs = [(deployment / f"node{number}.log").read_text() for number in range(NODES)]
    assert ["gradients by engine hooks on cpu" in log for log in logs] == [True, False]
    for number in range(NODES):
        trained, others, same = Home(deployment / f"home{number}").ledger().campaigns()[known:]
        assert trained.records + others.records == RECORDS // NODES
        assert same.records == trained.records
        assert abs(trained.records - 0.6 * RECORDS / NODES) < 100


def test_a_chain_of_a_factory_survives_a_kill_and_waits_for_its_owners(
    deployment: Path, links: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SuperLink and ServerApp are killed (SIGKILL) after a round of a factory's convolutions. The
    owner that has vetted it takes batches by Opacus, the other one record at a time. Started again,
    the run asks for the rest: its weights are those of the answers in the ledgers, bit for bit, and
    nobody pays twice. It ends for owners to list the model, and then goes on."""
    package = write_package(deployment / SITE / "networks_of_a_package")
    monkeypatch.syspath_prepend(str(package.parent))
    factory, out = f"{package.name}.models:convolutions", deployment / "out"
    homes = [Home(deployment / f"home{number}") for number in range(NODES)]
    for home, vetted in zip(homes, (["--vetted"], []), strict=True):
        listed = client("allow", "architecture", factory, "--home", home.folder, "--yes", *vetted)
        assert listed[0] == 0
    known = [home.ledger().campaigns() for home in homes]
    card_file = out / "central-trusted.card.json"
    card_file.unlink(missing_ok=True)

    def run(**settings: Any) -> Any:
        campaigns, given = "training:federated-averaging central:trusted", {"architecture": factory}
        return start_run(deployment, campaigns, **TRAINING | given | settings)

    def trained() -> list[dict[bytes, bytes]]:
        return [
            answers(home)
            for home, old in zip(homes, known, strict=True)
            if len(home.ledger().campaigns()) > len(old)
        ]

    run()
    first = wait_for(lambda: len(trained()) == NODES and trained(), 120)
    (counted,) = wait_for(lambda: list(out.glob("unfinished/*/00000")))
    kill_superlink(deployment)
    start_superlink(links, deployment)
    stored = counted.stat().st_mtime_ns
    assert outcome(deployment, run()) == "finished:completed"
    assert counted.stat().st_mtime_ns == stored
    assert not card_file.exists()
    held = [old | new for old, new in zip(first, trained(), strict=True)]
    name = hashlib.sha256((out / "training-federated-averaging.onnx").read_bytes()).hexdigest()
    for home in homes:
        assert client("allow", "model", name, "--home", home.folder, "--yes")[0] == 0
    assert outcome(deployment, run(listed=True)) == "finished:completed"
    assert not (out / "unfinished").exists()
    logs = [(deployment / f"node{number}.log").read_text() for number in range(NODES)]
    assert ["gradients by engine functional on cpu" in log for log in logs] == [False, True]

    card = read_card(card_file)
    assert [found.clause for found in verify(card) if not found.holds] == []
    assert card.formal["released"]["model"] == name
    plan = Plan.from_bytes(bytes.fromhex(card.formal["chain"]["training"]))
    learned, received = run_training(
        plan,
        lambda query: [
            Sent(bytes([number]), one[query_digest(query)]) for number, one in enumerate(held)
        ],
    )
    with np.load(out / "training-weights.npz") as weights:
        assert np.array_equal(weights["weights"], learned.weights)
    about = json.loads((out / "training-federated-averaging.json").read_text())
    assert about["received"] == received == {"OK": 2 * NODES}
    for home, old in zip(homes, known, strict=True):
        training, calibration = home.ledger().campaigns()[len(old) :]
        assert (training.queries, calibration.queries) == (2, 1)
        assert training.records + calibration.records == RECORDS // NODES


def test_a_hostile_bundle_is_not_run(deployment: Path, tmp_path: Path) -> None:
    """A bundle whose client would send raw labels is refused by every pinned node, which says why;
    nothing is spent."""
    hostile = copy_checkout(tmp_path / "hostile")
    app = hostile / "client" / "flower_app.py"
    app.write_text(
        app.read_text() + f"\nopen({str(tmp_path / 'stolen')!r}, 'w').write('raw labels')\n"
    )
    before = [Home(deployment / f"home{number}").ledger().campaigns() for number in range(NODES)]
    run = start_run(deployment, "labels:certified", project=hostile)
    assert outcome(deployment, run) == "finished:failed"
    assert not (tmp_path / "stolen").exists()
    assert [
        Home(deployment / f"home{number}").ledger().campaigns() for number in range(NODES)
    ] == before
    for number in range(NODES):
        assert (
            f"bundle {bundle_hash(hostile)} is not allowed by the data owner"
            in (deployment / f"node{number}.log").read_text()
        )


def test_misbehaving_nodes_cost_their_own_answers_only(deployment: Path, tmp_path: Path) -> None:
    """One node never answers, one is killed while it is asked, one sends garbage, one answers
    twice: the counts are right."""
    _, labels = predictions()
    _, rest, _ = deal(labels, owners=1, records=RECORDS, seed=1)
    aggregator = read_key(deployment / "aggregator.key").public_key().public_bytes_raw()
    nodes = {}
    with together() as running:
        for number, (name, behaviour) in enumerate(BEHAVIOURS.items(), start=NODES):
            write_owner(deployment, number, rest[number::100], aggregator)
            misbehave(deployment, number, behaviour, asked=tmp_path / f"{name}-asked")
            nodes[name] = start_node(running, deployment, number)
        wait_for(lambda: all(ready() for _, ready in nodes.values()))
        run = start_run(deployment, "labels:published", timeout=45.0)
        wait_for(lambda: (tmp_path / "killed-asked").exists())
        os.killpg(nodes["killed"][0].pid, signal.SIGKILL)
        assert outcome(deployment, run) == "finished:completed"
    assert (tmp_path / "never-asked").exists()
    row = json.loads((deployment / "out" / "labels-published.json").read_text())
    assert row["n"] == RECORDS + len(rest[NODES + 3 :: 100])
    assert row["received"]["OK"] == NODES + 1
    # Flower itself drops the second answer of a message; were it to pass it on, it would be a
    # DUPLICATE.
    assert row["received"]["MALFORMED"] == 1
