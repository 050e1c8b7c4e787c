"""A simulation on a file of targets: what follows from the file, what is measured and refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.campaigns.measurements import Measurements
from confide.aggregator.campaigns.planning.run_plans import Plans
from confide.aggregator.campaigns.planning.simulated_settings import simulated_settings
from confide.aggregator.campaigns.summary import as_text, owners_text
from confide.protocol.errors import BadInput
from confide.protocol.scores.task import REGRESSION
from confide.protocol.simulated.records import dealt
from tests.support.owners.own_data import config, write_probabilities
from tests.support.truth.regressions import SCORE, coverage, number_model, numbers, write_numbers

N = 2_000
HELD = numbers(N, 5)
OWNERS = np.repeat(["a", "b", "c"], [1_000, 700, 300])


def asked(path: Path, **given: Any) -> dict[str, Any]:
    return config(data=path, owner_column="owner", campaigns="bits:certified", score=SCORE) | {
        name.replace("_", "-"): value for name, value in given.items()
    }


def test_widths_and_coverage_are_measured_in_all_and_by_owner(tmp_path: Path) -> None:
    """In the unit of targets; a record without a target is not covered, and raises nothing.

    Coverage of 500 test records has a standard deviation of 0.013, so it is within 0.08 of the law
    but with a probability below 1e-8.
    """
    targets = HELD.targets.copy()
    targets[:3] = np.nan
    path = write_numbers(tmp_path / "r.csv", HELD._replace(targets=targets), owner=OWNERS)
    settings, model = simulated_settings(asked(path), owners=3)
    assert (settings["labels"], settings["records"], model) == (0, 1_500, None)
    (plan,) = Plans(settings, run=0, owners=3).drafts
    assert (plan.labels, plan.task, plan.score) == (0, REGRESSION, SCORE)
    row = Measurements(settings, owners=3).non_private(alpha=0.1)
    reach = row["threshold"] * 10
    assert np.isclose(row["mean_width"], 2 * reach)
    assert abs(row["coverage"] - coverage(reach)) < 0.08
    assert [one["owner"] for one in row["owners"]] == ["a", "b", "c"]
    assert "mean width" in as_text([row])
    assert f"/ {row['mean_width']:.4g}" in owners_text([row])
    row["mean_width"] = None
    assert "unbounded" in as_text([row])


def test_a_model_predicts_the_features_of_a_file(tmp_path: Path) -> None:
    """With the results of the columns that the other file has."""
    file = tmp_path / "model.onnx"
    file.write_bytes(number_model().data)
    found = []
    for features in (False, True):
        path = write_numbers(tmp_path / f"{features}.csv", HELD, features=features, owner=OWNERS)
        given = asked(path, model_file=str(file) if features else "")
        settings, model = simulated_settings(given, owners=3)
        found.append(Measurements(settings, owners=3, model=model).non_private(alpha=0.1))
    assert np.isclose(found[0]["threshold"], found[1]["threshold"], atol=1e-6)


def test_a_dirichlet_skew_gives_owners_different_targets(tmp_path: Path) -> None:
    """By tenths of the targets; without it owners are alike."""
    path = write_numbers(tmp_path / "r.csv", HELD)
    spread = []
    for concentration in (0.0, 0.05):
        given = config(data=path, score=SCORE, concentration=concentration, seed=3)
        means = [HELD.targets[one].mean() for one in dealt(given, owners=4).shares if len(one)]
        spread.append(np.ptp(means))
    assert spread[1] > 4 * spread[0]


def test_scores_that_do_not_fit_the_file_are_refused(tmp_path: Path) -> None:
    """Of labels for targets, of targets for labels, and of columns that the file lacks."""
    targets = write_numbers(tmp_path / "r.csv", HELD, owner=OWNERS)
    labels = write_probabilities(tmp_path / "labels.npz")
    for given, said in (
        (asked(targets, score="hps"), "r.csv has targets; accepted is absol"),
        (config(data=labels, score=SCORE), "labels.npz has labels; accepted is hps, aps"),
        (config(score=SCORE), "embedded letters has labels; accepted is hps"),
        (asked(targets, score="cqr bound=5"), "holds no lower and upper, and bits:certified needs"),
    ):
        with pytest.raises(BadInput, match=said):
            simulated_settings(given, owners=3)
    settings, _ = simulated_settings(asked(targets, campaigns="labels:certified"), owners=3)
    with pytest.raises(BadInput, match="accepted are scores of labels"):
        Plans(settings, run=0, owners=3)
