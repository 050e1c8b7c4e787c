"""A real Flower simulation of all methods, what it leaves, and the same from an installed wheel."""

import json
import os
import subprocess
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import run_campaign
from confide.client.simulated import simulated_owner
from confide.protocol.cards.card import read_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.plan import open_plan
from confide.protocol.simulated.attendance import Attendance
from confide.protocol.simulated.records import dealt
from confide.protocol.simulated.settings import RUN_FOLDER, SIMULATION_PUBLIC
from confide.simulation.defaults import run_defaults
from tests.support.programs.federations import (
    CAMPAIGNS,
    DROPOUT,
    NODES,
    RECORDS,
    SEED,
    SIZES,
    command,
)
from tests.support.programs.processes import marked, members
from tests.support.programs.wheels import unpacked_wheel
from tests.support.repository.places import ROOT

TERMS = ["--epsilon", "4", "--concentration", "1", "--sizes", SIZES]
TERMS += ["--dropout", str(DROPOUT)]
AWAY = Attendance(owners=NODES, dropout=DROPOUT, seed=SEED).away
PRESENT = np.flatnonzero(~AWAY).tolist()
Run = tuple[subprocess.CompletedProcess[str], Path, set[int]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One real Flower simulation of all methods, labels skewed over owners, some of which stay
    away."""
    out, own = tmp_path_factory.mktemp("federation"), tmp_path_factory.mktemp("own")
    done = subprocess.run(
        command(out, "--campaigns", CAMPAIGNS, "--privacy-delta", "1e-5", *TERMS),
        cwd=ROOT,
        env=marked(own),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done, out, members(own)


def test_a_flower_simulation_ends_in_a_table_and_a_report(run: Run) -> None:
    """Exit code 0, a row a campaign, certificates, plot and page in the folder, and no process
    left."""
    done, out, left = run
    assert done.returncode == 0, done.stderr
    assert "non-private" in done.stdout
    assert done.stdout.count("verified") == 5
    # A card each, and the predictions that follow.
    assert done.stdout.count("SIMULATION ONLY") == 6
    methods = ("labels-certified", "bits-certified", "pairs-class-conditional", "central-trusted")
    calibrations = (*methods, "central-owner-noised")
    files = {
        f"{name}{kind}" for name in calibrations for kind in (".json", ".card.json", ".card.html")
    }
    files |= {
        "training-federated-averaging.json",
        "training-federated-averaging.onnx",
        "training-weights.npz",
        "central-trusted.auditor.json",
    }
    found = {path.name for path in out.iterdir() if not path.name.startswith("release-")}
    assert found == files | {"set-sizes.svg", "report.html"}
    assert len(list(out.glob("release-*.json"))) == 1
    page = (out / "report.html").read_text()
    assert "labels:certified" in page
    assert "<svg" in page
    assert not left


def test_an_auditor_sees_the_inflation_and_the_public_does_not(run: Run) -> None:
    """Both cards of a trusted calibration verify; what depends on the records is in the auditor's
    only. A width, which a beta bounds, is not stated without one."""
    cards = {
        kind: read_card(run[1] / f"central-trusted.{kind}.json") for kind in ("card", "auditor")
    }
    assert all(
        finding.holds for card in cards.values() for finding in verify(card, key=SIMULATION_PUBLIC)
    )
    seen = cards["auditor"].diagnostic
    assert 0 <= seen["observed_inflation"] < 1
    assert set(seen) - set(cards["card"].diagnostic) == {"observed_inflation"}


def test_a_model_is_trained_over_flower(run: Run) -> None:
    """Owners' DP-SGD, averaged: within the budget, far better than guessing one letter of 26, and
    every round answered by the owners that do not stay away."""
    about = json.loads((run[1] / "training-federated-averaging.json").read_text())
    assert about["epsilon"] <= 4.0
    assert about["accuracy"] > 0.3
    assert about["owners"] == [len(PRESENT)] * 30
    assert 0 < len(PRESENT) < NODES


@pytest.mark.parametrize(
    "name",
    ["labels-certified", "bits-certified", "pairs-class-conditional", "central-owner-noised"],
)
def test_flower_and_the_in_process_driver_agree(
    run: Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the same plan and seed, owners asked directly give the threshold and the counts that came
    out over Flower."""
    row = json.loads((run[1] / f"{name}.json").read_text())
    signed = bytes.fromhex(row["plan"])
    plan, _ = open_plan(signed, trusted={SIMULATION_PUBLIC}, now=datetime.now(UTC))
    monkeypatch.setenv(RUN_FOLDER, str(tmp_path))

    config = run_defaults()
    config |= {"records": RECORDS, "sizes": SIZES, "concentration": 1.0, "seed": SEED}

    def ask(query: bytes) -> list[Sent]:
        made = partial(simulated_owner, run=1, owners=NODES, config=config, query=query)
        return [Sent(bytes([owner]), made(owner=owner).answer(signed, query)) for owner in PRESENT]

    outcome = run_campaign(plan, ask)
    certificate = outcome.certificate
    assert (row["threshold"], row["n"]) == (certificate.threshold, certificate.n)
    card = read_card(run[1] / f"{name}.card.json")
    shown = card.formal.get("certificate", {}).get("strata", {}).get("parts", [])
    assert [(one["name"], one["threshold"], one["reason"]) for one in shown] == [
        (one.name, one.threshold, one.reason) for one in certificate.strata
    ]
    assert len(shown) == (26 if name.startswith("pairs") else 0)
    shares = dealt(config, owners=NODES).shares
    # Labels ask everybody; bits may be done before the last stage.
    held = sum(len(shares[owner]) for owner in PRESENT)
    assert row["n"] == held or name == "bits-certified"
    assert row["received"] == outcome.received
    assert row["randomness"] == "seeded (simulation only)"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, unpacked."""
    return unpacked_wheel(tmp_path_factory.mktemp("wheel"))


def test_an_installed_federation_repeats_one_of_the_checkout(
    run: Run, installed: Path, tmp_path: Path
) -> None:
    """From a wheel, in an empty folder, into a folder that is not there: the plans, thresholds,
    counts and cards of the same seed in the checkout; only the moments of the cards, and so their
    signatures, differ, and the order of owners, whom Flower numbers anew."""
    (tmp_path / "empty").mkdir()
    out = tmp_path / "new" / "out"
    done = subprocess.run(
        command(out, "--campaigns", "bits:certified central:trusted", *TERMS),
        cwd=tmp_path / "empty",
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not any((tmp_path / "empty").iterdir())
    for name in ("bits-certified", "central-trusted"):
        one, other = (json.loads((folder / f"{name}.json").read_text()) for folder in (run[1], out))
        assert one == other
        cards = [read_card(folder / f"{name}.card.json").content() for folder in (run[1], out)]
        for card in cards:
            del card["provenance"]["issued"]
            rows = card["diagnostic"].get("owners", [])
            rows.sort(key=lambda row: row["reports"])
            for row in rows:
                del row["owner"]
        assert cards[0] == cards[1]
