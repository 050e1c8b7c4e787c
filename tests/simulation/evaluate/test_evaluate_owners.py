"""Owners in `evaluate`: a column that names them, and what is measured of each."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import confide
from confide.protocol.errors import BadInput
from tests.support.programs.simulation import in_process
from tests.support.truth.known import label_population

Array = NDArray[Any]
Made = tuple[Array, Array, Array]
N, K = 9_000, 4
# Of eleven owners, whose names as text are not in the order of numbers, one is harder.
HARD = "10"


@pytest.fixture(scope="module")
def made() -> Made:
    """Probabilities, labels and owners; the labels of one owner are harder to predict."""
    rng = np.random.default_rng(2)
    probs, labels = label_population(N, K, rng, ties=False)
    owners = np.array([str(1 + i % 11) for i in range(N)])
    wrong = (owners == HARD) & (rng.random(N) < 0.15)
    labels = np.where(wrong, probs.argmin(axis=1), labels)
    return probs, labels, owners


@pytest.fixture(scope="module")
def file(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("owners") / "mine.csv"
    with path.open("w", newline="") as opened:
        written = csv.writer(opened)
        written.writerow(["label", *(f"p{i}" for i in range(K)), "site", "ward"])
        for probs, label, owner in zip(*made, strict=True):
            written.writerow([label, *probs, f"site {owner}", "north"])
    return path


def test_each_owner_is_measured_at_its_own_threshold(
    made: Made,
) -> None:
    """Per owner, the harder one has the highest threshold; the mean over owners is the whole, and
    thresholds are those that the certificate gives to owners in the order of their names."""
    probs, labels, owners = made
    found = confide.evaluate(
        probs,
        labels,
        owners=owners,
        method="labels:per-owner",
        epsilon=8.0,
        n=8_000,
        trials=1,
        seed=3,
    )
    (trial,) = found.trials
    parts = {one.name: one for one in trial.parts}
    strata = trial.calibration.certificate.strata
    in_order = sorted(parts, key=str.encode)
    assert [parts[name].threshold for name in in_order] == [one.threshold for one in strata]
    assert max(parts.values(), key=lambda one: one.threshold).name == HARD
    weights = np.array([one.records for one in trial.parts]) / 1_000
    assert weights.sum() == pytest.approx(1.0)
    assert trial.coverage == pytest.approx(weights @ [one.coverage for one in trial.parts])
    assert trial.size == pytest.approx(weights @ [one.size for one in trial.parts])


def test_the_command_shows_each_owner_and_why_it_has_no_threshold(file: Path) -> None:
    """With a floor above what any owner has, all are named, and the JSON has a row for each.
    Another column of text is ignored."""
    asked: tuple[str | Path, ...] = (
        "--data",
        file,
        "--method",
        "bits",
        "--variant",
        "per-owner",
        "--epsilon",
        "4",
    )
    asked = (*asked, "--n", "6000", "--trials", "1", "--seed", "1", "--owner-column", "site")
    shown = in_process(*asked, "--owner-floor", "700")
    assert shown.exit_code == 0, shown.stderr
    assert "ignored: ward (" in shown.stderr
    assert "bits per-owner: each owner" in shown.stdout
    assert "site 10: certified nothing in 1 of 1 campaigns; too few reports" in shown.stdout
    parts = json.loads(in_process(*asked, "--json", "-").stdout)["trials"][0]["parts"]
    assert sorted(one["name"] for one in parts) == sorted(f"site {i}" for i in range(1, 12))
    assert all(one["records"] > 0 and 0.5 < one["coverage"] <= 1 for one in parts)


def test_a_column_that_is_not_there_is_named(file: Path) -> None:
    run = in_process("--data", file, "--trials", "1", "--owner-column", "cite")
    assert run.exit_code == 2
    assert "missing: cite" in run.stderr


def test_columns_that_are_not_read_are_named(file: Path) -> None:
    """With the options that would read them."""
    run = in_process("--data", file, "--trials", "1", "--n", "1000")
    assert run.exit_code == 0
    assert "ignored: site, ward (one of owners is named by --owner-column" in run.stderr


def test_owners_that_do_not_fit_are_named(
    made: Made,
) -> None:
    """A column without a file, too few owners, and none where the method needs them."""
    assert "--owner-column is 'site' without --data" in in_process("--owner-column", "site").stderr
    probs, labels, owners = made
    with pytest.raises(BadInput, match="5 owners with 9000 truths"):
        confide.evaluate(probs, labels, owners=owners[:5], trials=1)
    with pytest.raises(BadInput, match="owners is not given; accepted is the owner of every"):
        confide.evaluate(probs, labels, method="bits:for-every-owner", trials=1)


def test_an_owner_that_few_rounds_reach_is_named_itself() -> None:
    """A tiny owner may have no record in what a search asks; reasons stay with their owners."""
    probs, labels = label_population(6_000, K, np.random.default_rng(4), ties=False)
    found = confide.evaluate(
        probs,
        labels,
        owners=["a"] * 4 + ["b"] * 2_996 + ["c"] * 3_000,
        method="bits:for-every-owner",
        epsilon=8.0,
        n=4_000,
        trials=4,
        seed=1,
    )
    for trial in found.trials:
        reasons = {one.name: one.reason for one in trial.parts}
        assert reasons["b"] is None
        assert reasons["c"] is None
        assert "too few reports" in (reasons.get("a") or "too few reports")
