"""A real Flower simulation on a file of the user's own, with twelve owners of unequal size."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import run_campaign
from confide.client.simulated import simulated_owner
from confide.protocol.cards.card import parse_card
from confide.protocol.methods.owner_terms import GROUP_VARIANTS, OWNER_VARIANTS
from confide.protocol.plan import open_plan
from confide.protocol.simulated.embedded import embedded_model
from confide.protocol.simulated.settings import RUN_FOLDER, SIMULATION_PUBLIC
from tests.support.owners.own_data import HOSPITALS, SIZES, N, config, write_features, write_model
from tests.support.repository.places import ROOT

OWNERS = [f"{method}:{variant}" for method in ("labels", "bits") for variant in OWNER_VARIANTS]
GROUPS = [f"{method}:{variant}" for method in ("labels", "bits") for variant in GROUP_VARIANTS]
# At epsilon 4, these are all that a simulated owner lets its records pay for.
CAMPAIGNS = ["labels:certified", "central:owner-noised", *OWNERS, *GROUPS]


def check_parts(out: Path, name: str) -> None:
    """Each hospital is a part: the smallest are left out by the floor, and the largest is not.

    With a threshold each, every hospital is measured at its own: one that is left out is covered.
    """
    parts = parse_card((out / f"{name}.card.json").read_text()).formal["certificate"]["strata"]
    row = json.loads((out / f"{name}.json").read_text())
    of_groups = parts["by"] == "group"
    assert (of_groups, len(parts["parts"])) == ("group" in name, len(HOSPITALS))
    if of_groups:
        assert [part["name"] for part in parts["parts"]] == list(HOSPITALS)
    covered = sum(one.get("covered", True) for one in parts["parts"])
    assert 0 < covered < len(HOSPITALS)
    sizes = {one["owner"]: one.get("mean_size", 26.0) for one in row["owners"]}
    # Bits have some 200 answers of the largest in their last stage, which may certify nothing.
    assert sizes[HOSPITALS[-1]] < 26 or name.startswith("bits")
    if not parts.get("together"):
        # Whichever numbers the nodes of Flower have, only the largest hospitals are covered.
        assert [sizes[one] for one in HOSPITALS[:-covered]] == [26.0] * (len(HOSPITALS) - covered)


def test_twelve_owners_of_a_file_end_in_a_table_by_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes are the owners that a column of a csv file names. Labels go with features in clear
    to an aggregator that scores; bits are of scores that owners compute with the same model. The
    table has a line for each owner, and owners asked directly give the same threshold."""
    data, model = write_features(tmp_path / "mine.csv"), write_model(tmp_path / "model.onnx")
    given = ["--data", data, "--owner-column", "hospital", "--model", model, "--seed", 5]
    given += [
        "--campaigns",
        " ".join(CAMPAIGNS),
        "--scoring",
        "aggregator",
        "--epsilon",
        4,
        "--score",
        "aps",
    ]
    given += ["--out", tmp_path / "out", "--group-column", "hospital", "--group-floor", 300]
    given += ["--owner-floor", 300, "--by", "group"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "confide",
            "federation",
            *map(str, given),
            "--out",
            tmp_path / "out",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "12 nodes, 1,875 records dealt, mine.csv" in done.stdout
    lines = [line for line in done.stdout.splitlines() if line.startswith("hospital ")]
    assert [line[: len(HOSPITALS[0])] for line in lines] == list(HOSPITALS)
    assert done.stdout.count("verified") == len(CAMPAIGNS)
    for name in GROUPS + OWNERS:
        check_parts(tmp_path / "out", name.replace(":", "-"))
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(name in page for name in HOSPITALS)
    assert "<h2>Groups</h2>" in page
    for name in ("labels-certified", "bits-per-owner", "central-owner-noised"):
        row = json.loads((tmp_path / "out" / f"{name}.json").read_text())
        sizes = [one["records"] + one["test_records"] for one in row["owners"]]
        assert sizes == list(SIZES)
        assert row["n"] <= N * 3 // 4
    row = json.loads((tmp_path / "out" / "labels-certified.json").read_text())
    signed = bytes.fromhex(row["plan"])
    plan, _ = open_plan(signed, trusted={SIMULATION_PUBLIC}, now=datetime.now(UTC))
    assert plan.terms.sent_features == 16
    monkeypatch.setenv(RUN_FOLDER, str(tmp_path))
    run_config = config(
        data=data, owner_column="hospital", model_file=model, scoring="aggregator", seed=5
    )

    def ask(query: bytes) -> list[Sent]:
        owners = [
            simulated_owner(run=1, owner=owner, owners=12, config=run_config, query=query)
            for owner in range(12)
        ]
        return [Sent(bytes([i]), one.answer(signed, query)) for i, one in enumerate(owners)]

    outcome = run_campaign(plan, ask, model=embedded_model())
    assert (row["threshold"], row["n"]) == (outcome.certificate.threshold, N * 3 // 4)
