"""A training on the command lines of both sides, and the settings that it takes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.campaigns.planning.settings import KINDS, belongs, check
from confide.aggregator.keys import SIGNING_KEY
from confide.protocol.errors import BadInput
from confide.protocol.simulated.records import EMBEDDED_RECORDS
from confide.simulation.defaults import run_defaults
from tests.support.owners.owners import PUBLIC as PUBLIC_KEY
from tests.support.servers.operating import said
from tests.support.servers.pages import get
from tests.support.servers.servers import Place, aggregator, client, eventually
from tests.support.training.federated_trainings import SETTINGS, people, training_plan

GOOD = SETTINGS | {"campaign": "training:federated-averaging", "records": 200}


def create(place: Place, **changes: Any) -> tuple[int, str]:
    """`campaign create` with these settings in a file; None leaves one out."""
    values = GOOD | {name.replace("_", "-"): value for name, value in changes.items()}
    file = place.folder / "campaign.toml"
    lines = (f"{name} = {json.dumps(one)}\n" for name, one in values.items() if one is not None)
    file.write_text("".join(lines))
    key = place.keys / SIGNING_KEY
    return said("campaign", "create", "--key", key, "--db", place.url, "--file", file)


def test_the_life_of_a_training_on_the_command_line(place: Place, tmp_path: Path) -> None:
    """create, open, contribute, status, weights, export: rounds are counted on both sides, the
    weights go into a new file, and what is there is not replaced."""
    home, records, db = tmp_path / "home", tmp_path / "records.npz", ("--db", place.url)
    held = people(training_plan(), 1)
    columns: dict[str, Any] = {"features": held.features, "label": held.truth}
    np.savez(records, id=np.arange(len(held)), **columns)
    assert client("init", "--home", home)[0] == 0
    assert client("allow", "aggregator", PUBLIC_KEY.hex(), "--home", home, "--yes")[0] == 0
    policy = (home / "policy.toml").read_text()
    (home / "policy.toml").write_text(
        policy.replace('methods = ["bits"]', 'methods = ["training"]')
        .replace("epsilon_per_record = ", "epsilon_per_record = 8.0 #")
        .replace("epsilon_per_campaign = ", "epsilon_per_campaign = 8.0 #")
        .replace("delta_per_record = ", "delta_per_record = 1e-4 #")
        .replace("delta_per_campaign = ", "delta_per_campaign = 1e-4 #")
    )
    assert create(place, owners=1, loss_share=0.2) == (0, "")
    (campaign,) = (one.id for one in place.store.campaigns())
    (tmp_path / "token").write_text(aggregator("owner", "add", "me", *db)[1])
    server = place.serve("--http", "0")
    assert aggregator("campaign", "weights", campaign, tmp_path / "w.npz", *db)[0] == 2
    assert aggregator("campaign", "open", campaign, *db)[0] == 0
    access = ("--aggregator", f"127.0.0.1:{server.port}", "--ca", place.keys / "ca.pem")
    own = ("--token-file", tmp_path / "token", "--records", records, "--home", home)
    # A device that is not here is the owner's mistake, and no refusal that the aggregator hears of.
    for device in ("tpu", "cuda:99"):
        found = client("contribute", *access, "--campaign", campaign, *own, "--device", device)
        assert found[0] == 2, found
    code, text = client("contribute", *access, "--campaign", campaign, *own)
    assert (code, "4 reports" in text, "4 of the rounds" in text) == (0, True, True), text
    eventually(lambda: place.store.campaign(campaign).state == "trained")
    text = aggregator("campaign", "status", *db)[1]
    assert f"{campaign}  trained" in text
    assert "4 of 4 rounds done" in text

    assert aggregator("campaign", "weights", campaign, tmp_path / "w.txt", *db)[0] == 2
    assert aggregator("campaign", "weights", campaign, tmp_path / "w.npz", *db)[0] == 0
    code, complaint = said("campaign", "weights", campaign, tmp_path / "w.npz", *db)
    assert (code, "w.npz exists already" in complaint) == (2, True)
    found = np.load(tmp_path / "w.npz")["weights"]
    assert (found.tobytes(), found.shape) == (place.store.weights(campaign), (15,))
    about = json.loads((tmp_path / "w.json").read_text())
    assert (about["owners"], about["received"]) == ([1] * 4, {"OK": 4})
    assert aggregator("campaign", "export", campaign, tmp_path / "out", *db)[0] == 0
    assert (tmp_path / "out/weights.npz").read_bytes() == (tmp_path / "w.npz").read_bytes()

    for path, words in {
        "/": ["trained", "4 answers of owners in 4 of 4 rounds"],
        f"/campaigns/{campaign}": [
            "Trained: 4 answers of owners in 4 rounds",
            "15 weights",
            "predict wrongly, with noise that 20 % of the budget pays for",
            f'<td class="number">{about["error_rates"][3]["rate"]:.3f}</td>',
        ],
        f"/campaigns/{campaign}/training.json": ["replace-one", "epsilon_loss"],
    }.items():
        status, _, body = get(server, path)
        assert (status, [word for word in words if word not in body.decode()]) == (200, []), path
    assert aggregator("campaign", "publish", campaign, *db)[0] == 2
    assert aggregator("campaign", "purge", campaign, *db) == (0, "4 batches deleted\n")
    assert place.store.weights(campaign) == found.tobytes()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architecture": "transformer"}, "architecture is 'transformer'; accepted: linear, mlp"),
        ({"architecture": 4}, "architecture is 4; accepted is text"),
        ({"architecture": "head"}, "the network is a head, and model is not given"),
        ({"features": 0}, "features is 0; accepted is a whole number from 1"),
        ({"momentum": 1.0}, "momentum is 1.0; accepted is a number from 0 to 0.99"),
        ({"averaged_rounds": 5}, "averaged_rounds is 5 of 4 rounds"),
        ({"centre": -0.5}, "centre is -0.5"),
        ({"loss_share": 0.6}, "loss-share is 0.6; accepted is a number from 0 to 0.5"),
        ({"rounds": 0}, "rounds is 0; accepted is a whole number from 1 to 10000"),
        ({"rounds": 2.5}, "rounds is 2.5"),
        ({"local_steps": 10**4}, "local-steps is 10000"),
        ({"sampling_rate": 1.5}, "sampling-rate is 1.5; accepted is a number from 1e-06 to 1"),
        ({"clip": 0}, "clip is 0"),
        ({"batch": 0.5}, "batch is 0.5"),
        ({"learning_rate": "fast"}, "learning-rate is 'fast'"),
        ({"momentum": None, "rounds": None}, "missing: rounds, momentum"),
        ({"learning_rate": "auto"}, "learning-rate is 'auto' and owners is not given"),
        ({"bins": 100}, "bins is given, which training:federated-averaging does not use"),
        ({"failure_probability": 0.1}, "failure-probability is given"),
        (
            {"campaign": "bits:certified", "model": "00" * 32, "privacy_delta": None},
            "is given, which bits:certified does not use; it belongs to training",
        ),
        ({"epochs": 3}, "has unknown epochs"),
    ],
)
def test_settings_of_a_training_are_refused_by_name(
    changes: dict[str, Any], words: str, place: Place
) -> None:
    """Of the wrong kind, out of bounds, missing, or of another method: exit code 2, and nothing is
    stored."""
    code, complaint = create(place, **changes)
    assert (code, words in complaint) == (2, True), complaint
    assert place.store.campaigns() == []


def test_flower_and_grpc_take_the_same_settings() -> None:
    """Every setting of a training has a kind, is in Flower's run configuration, and its default
    there is of that kind."""
    own = [name for name, owners in belongs().items() if "training" in owners]
    assert set(own) <= set(KINDS)
    assert set(own) <= set(run_defaults())
    given = run_defaults() | {"model": "00" * 32, "records": EMBEDDED_RECORDS}
    check(given)
    for name in own:
        # Targets may be negative.
        with pytest.raises(BadInput, match=name):
            check(given | {name: -1e13 if name.startswith("target-") else -1})
