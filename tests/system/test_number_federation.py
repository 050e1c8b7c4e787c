"""A plain `flwr run` on a csv file with targets of three owners, named by its configuration."""

import json
from pathlib import Path

import numpy as np

from confide.protocol.cards.card import read_card
from confide.protocol.cards.page import as_html
from confide.protocol.cards.verify.card import verify
from confide.protocol.simulated.settings import SIMULATION_PUBLIC
from confide.simulation.federation.harness import federation
from tests.support.truth.regressions import SCORE, coverage, numbers, write_numbers

CAMPAIGNS = {"bits:certified": 0.9, "central:trusted": 0.87, "central:owner-noised": 0.87}


def test_targets_of_three_owners_end_in_intervals(tmp_path: Path) -> None:
    """`flwr run --run-config 'data="mine.csv" owner-column="owner" ...'`: the server app finds out
    by itself what follows from the file. Bits and counts over Flower give cards that verify, in the
    unit of targets, and coverage and width by owner.

    Bits are promised but with probability 1e-4; marginal coverage of 4,500 records is below 0.87
    with a probability below 1e-10.
    """
    held = numbers(6_000, 21)
    owner = np.repeat(["north", "south", "west"], [3_000, 2_000, 1_000])
    data = write_numbers(tmp_path / "mine.csv", held, owner=owner)
    given = {"data": str(data), "owner-column": "owner", "score": SCORE, "epsilon": 6.0}
    given |= {"campaigns": " ".join(CAMPAIGNS), "failure-probability": 1e-4}
    out = tmp_path / "out"
    with federation() as flower:
        flower.run(nodes=3, config=given | {"output": str(out)}, tick=lambda: None)
    for name, least in CAMPAIGNS.items():
        path = out / f"{name.replace(':', '-')}.json"
        row, card = json.loads(path.read_text()), read_card(path.with_suffix(".card.json"))
        assert coverage(10 * row["threshold"]) >= least
        assert [one["owner"] for one in row["owners"]] == ["north", "south", "west"]
        assert np.allclose([one["mean_width"] for one in row["owners"]], 20 * row["threshold"])
        findings = verify(card, key=SIMULATION_PUBLIC)
        assert all(finding.holds for finding in findings)
        page = as_html(card, findings)
        assert f"the prediction plus or minus {10 * row['threshold']:.4g}" in page
