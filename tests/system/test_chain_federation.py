"""`confide federation --chain`: a real Flower simulation that trains a model and calibrates it."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from confide.protocol.cards.card import read_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.simulated.settings import SIMULATION_PUBLIC
from tests.support.repository.places import ROOT

NODES, RECORDS, SHARE = 3, 1_800, 0.5
CAMPAIGNS = "training:federated-averaging central:trusted"


def test_a_chain_on_one_machine_is_one_command(tmp_path: Path) -> None:
    """The training takes its share of the records, with batch and rate by the rule; the card of
    the calibration is of the model that was trained, on the rest, with both costs."""
    given = ["--chain", "--nodes", NODES, "--records", RECORDS, "--train-share", SHARE]
    given += ["--campaigns", CAMPAIGNS, "--epsilon", 2, "--training-epsilon", 4]
    given += ["--rounds", 2, "--averaged-rounds", 1, "--out", tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "confide", "federation", *map(str, given)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "trained: " in done.stdout
    assert done.stdout.count(": verified, ") == 1
    model = (tmp_path / "training-federated-averaging.onnx").read_bytes()
    card = read_card(tmp_path / "central-trusted.card.json")
    assert all(found.holds for found in verify(card, key=SIMULATION_PUBLIC))
    assert card.formal["released"]["model"] == hashlib.sha256(model).hexdigest()
    chain = card.formal["chain"]
    assert 3.5 < chain["epsilon_train"] <= 4.0
    assert chain["epsilon_calibration"] == 2.0
    terms = json.loads((tmp_path / "training-federated-averaging.json").read_text())["terms"]
    assert terms["batch"] == 0.5 * SHARE * RECORDS / NODES
    row = json.loads((tmp_path / "central-trusted.json").read_text())
    # What the owners' secrets left, and not the records that trained.
    assert abs(row["n"] - (1 - SHARE) * RECORDS) < 150
