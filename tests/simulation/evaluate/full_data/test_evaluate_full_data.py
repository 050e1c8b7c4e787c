import json
from pathlib import Path

import numpy as np
import pytest

from confide.protocol.cards.card import read_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.errors import BadInput
from confide.protocol.scores.task import REGRESSION
from confide.protocol.simulated.settings import SIMULATION_PUBLIC
from confide.simulation.data.population import lessons
from confide.simulation.data.synthetic import Clusters, line
from tests.support.programs.simulation import FULL, in_process


@pytest.mark.parametrize(
    ("task", "variant"), [("classification", "certified"), ("regression", "scp-f")]
)
def test_full_data_from_the_command_line(task: str, variant: str, tmp_path: Path) -> None:
    """Features and targets from a file are trained on and calibrated on; the total epsilon is the
    one asked for."""
    rng, path = np.random.default_rng(1), tmp_path / "records.npz"
    if task == "classification":
        features, labels = Clusters.drawn(rng, separation=1.5).draw(1_500, rng)
        np.savez(path, features=features, labels=labels)
        more = ["--feature-range", "-6", "6"]
    else:
        features, targets, _ = line(1_500, rng)
        np.savez(path, features=features, targets=targets)
        more = ["--feature-range", "-1", "1", "--range", "4"]
    run = in_process(
        "--data",
        path,
        "--method",
        "full-data",
        "--task",
        task,
        "--variant",
        variant,
        "--epsilon",
        "4",
        "--n",
        "1000",
        "--trials",
        "1",
        "--seed",
        "1",
        "--json",
        "-",
        *more,
        *(["--card", str(tmp_path / "card.json")] if variant == "certified" else []),
    )
    assert run.exit_code == 0, run.output
    result = json.loads(run.stdout)
    given = result["arguments"]
    assert 3.95 <= given["exact_epsilon"] <= 4.0
    assert given["adjacency"] == "add-remove"
    if variant == "certified":
        assert (given["certificate"], result["mean"]["certified_level"]) == ("certified", 0.9)
        assert result["mean"]["coverage"] >= 0.87
        card = read_card(tmp_path / "card.json")
        assert all(finding.holds for finding in verify(card, key=SIMULATION_PUBLIC))
        assert (card.formal["decision"], card.formal["calibration"]["rank"]) == (
            "simulation",
            given["rank"],
        )
    else:
        assert (given["certificate"], given["buffer_is"], given["buffer"]) == (
            "floors only",
            "heuristic buffer",
            10,
        )
        assert 0 < given["black_box_floor"] < 0.9
        assert given["stability_bound"] is None


def test_constants_vouched_for_bring_the_bound_they_are_for(tmp_path: Path) -> None:
    """With Theorem 3's constants DP-SCP-F uses its buffer, states its bound, and calls it
    conditional."""
    features, targets, _ = line(1_500, np.random.default_rng(1))
    np.savez(tmp_path / "numbers.npz", features=features, targets=targets)
    run = in_process(
        "--data",
        tmp_path / "numbers.npz",
        *FULL,
        "--task",
        "regression",
        "--range",
        "4",
        "--feature-range",
        "-1",
        "1",
        "--variant",
        "scp-f",
        "--stability",
        "1",
        "2",
        "0.0001",
        "0.01",
        "--n",
        "1000",
        "--trials",
        "1",
        "--seed",
        "1",
        "--json",
        "-",
    )
    assert run.exit_code == 0, run.output
    given = json.loads(run.stdout)["arguments"]
    assert (given["certificate"], given["buffer_is"]) == (
        "conditional on assumptions",
        "Theorem 3's",
    )
    assert given["stability_bound"] == pytest.approx(0.999 * (0.9 - 0.0004 - 0.03 - 1 / 1001))


def test_targets_to_learn_from_may_be_a_column(tmp_path: Path) -> None:
    """Records to learn from take targets of shape (n, 1) as n, and refuse two columns."""
    features, targets, _ = line(300, np.random.default_rng(1))
    np.savez(tmp_path / "column.npz", features=features, targets=targets[:, None])
    np.savez(tmp_path / "two.npz", features=features, targets=np.stack([targets, targets], axis=1))
    read = lessons(tmp_path / "column.npz", REGRESSION, bound=4.0, limits=(-1.0, 1.0))
    assert np.array_equal(read.targets, targets)
    with pytest.raises(
        BadInput, match=r"targets have shape \(300, 2\); accepted are \(n,\) and \(n, 1\)"
    ):
        lessons(tmp_path / "two.npz", REGRESSION, bound=4.0, limits=(-1.0, 1.0))
