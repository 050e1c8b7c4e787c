"""A simulation on a file of the user's own: what follows from the file, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide import evaluate
from confide.aggregator.campaigns.measurements import Measurements
from confide.aggregator.campaigns.planning.simulated_settings import simulated_settings
from confide.aggregator.campaigns.summary import owners_text
from confide.protocol.certificate import LocalCertificate, Stratum
from confide.protocol.errors import BadInput
from confide.protocol.models.model_file import Model
from confide.protocol.simulated.embedded import embedded_model, owned, predictions
from confide.protocol.simulated.records import dealt, simulated_data
from confide.protocol.simulated.settings import EMBEDDED_MODEL, RESULTS_IN_FILE
from tests.support.owners.own_data import (
    HOSPITALS,
    SIZES,
    N,
    config,
    write_features,
    write_model,
    write_probabilities,
)
from tests.support.truth.multi_label import many_labels

MADE = LocalCertificate(
    method="labels",
    variant="per-owner",
    kind="PAC",
    threshold=1.0,
    level=0.9,
    alpha=0.1,
    delta=0.1,
    n=10,
    channel="k-rr",
    epsilon=1.0,
)


def test_the_file_says_labels_features_records_and_owners(tmp_path: Path) -> None:
    """Three quarters of the records are dealt, to the owners that hold them, and the rest to
    nobody; the plan names the model by its digest."""
    path, model = write_features(tmp_path / "mine.csv"), write_model(tmp_path / "model.onnx")
    asked = config(data=path, owner_column="hospital", model_file=model, score="aps")
    settings, data = simulated_settings(asked, owners=12)
    assert data == embedded_model()
    assert settings["model"] == Model.of(embedded_model()).digest.hex()
    assert (settings["labels"], settings["features"], settings["records"]) == (26, 16, N * 3 // 4)
    shares, test, tested = dealt(asked, owners=12)
    assert [len(a) + len(b) for a, b in zip(shares, tested, strict=True)] == list(SIZES)
    assert sum(map(len, shares)) + len(test) == N
    assert simulated_data(asked).owners == HOSPITALS


def test_embedded_records_need_no_file() -> None:
    """Without a file all is as it was: 10,000 of the embedded records and their model, which is a
    file only where the aggregator scores."""
    settings, model = simulated_settings(config(), owners=5)
    assert (settings["records"], settings["labels"], model) == (10_000, 26, None)
    assert settings["model"] == EMBEDDED_MODEL.hex()
    settings, model = simulated_settings(config(scoring="aggregator"), owners=5)
    assert (settings["sent-features"], model) == (16, embedded_model())


@pytest.mark.parametrize("rule", [{}, {"sizes": "1 1 4"}, {"concentration": 0.3}])
def test_records_without_owners_are_dealt(tmp_path: Path, rule: dict[str, Any]) -> None:
    """Evenly, by size or by label, from probabilities of a model that is not named."""
    asked = config(data=write_probabilities(tmp_path / "mine.npz"), test_share=0.2, **rule)
    settings, model = simulated_settings(asked, owners=6)
    assert (settings["records"], settings["model"], model) == (
        N * 4 // 5,
        RESULTS_IN_FILE.hex(),
        None,
    )
    assert sum(map(len, dealt(asked, owners=6).shares)) == N * 4 // 5


def test_thresholds_of_classes_are_measured_label_by_label(tmp_path: Path) -> None:
    """Sets that hold one label always and the others never cover its share of the records; one
    threshold of 1 for all covers everything."""
    path = write_probabilities(tmp_path / "mine.npz")
    settings, _ = simulated_settings(config(data=path, seed=1), owners=3)
    found, k = Measurements(settings, owners=3), int(settings["labels"])
    strata = tuple(
        Stratum(name=str(label), threshold=float(label == 0), n=10, delta=0.1) for label in range(k)
    )
    made = replace(MADE, variant="class-conditional")
    assert found.of(made) == {"coverage": 1.0, "mean_size": k}
    measured = found.of(replace(made, by="class", strata=strata))
    results, truth = found.few(10**9)
    # A label that the model is certain of scores 0, and is in sets at threshold 0 too.
    sets = (1 - results <= 0) | (np.arange(k) == 0)
    assert measured["mean_size"] == sets.sum(axis=1).mean() < 1.1
    assert measured["coverage"] == sets[np.arange(len(truth)), truth].mean() < 0.1


def parts(**thresholds: float) -> tuple[Stratum, ...]:
    return tuple(
        Stratum(name=name.strip("_"), threshold=q, n=10, delta=0.1)
        for name, q in thresholds.items()
    )


def test_every_owner_is_measured_at_its_own_threshold(tmp_path: Path) -> None:
    """Cards number the owners that answered: here the third is owner 1, and the first owner 2. The
    second did not answer, so that nothing is ruled out there."""
    path = write_probabilities(tmp_path / "mine.npz")
    settings, _ = simulated_settings(config(data=path, seed=1, sizes="1 2 3"), owners=3)
    found, k = Measurements(settings, owners=3), int(settings["labels"])
    made = replace(MADE, by="owner", strata=parts(_1=0.5, _2=0.0))
    rows = found.by_owner(made, numbered=[2, 0])
    assert [row["mean_size"] for row in rows][1] == k
    assert 0 <= rows[0]["mean_size"] < 0.2 < 0.6 < rows[2]["mean_size"] <= 1
    whole = found.of(made, numbered=[2, 0])
    tested = np.array([row["test_records"] for row in rows])
    for name in ("coverage", "mean_size"):
        weighted = tested @ [row[name] for row in rows] / tested.sum()
        assert whole[name] == pytest.approx(weighted)


def test_risks_are_measured_at_the_threshold_of_their_group(tmp_path: Path) -> None:
    """A threshold q misses 1 - q of three true labels: 0.5 in one ward, 0.1 in the other."""
    held, limits = many_labels(8_000, 1), {"north": 0.5, "south": 0.9}
    wards = np.repeat([*limits], 4_000)
    arrays: dict[str, Any] = {
        "probs": held.chances,
        "true_labels": held.flags.astype(np.int64),
        "ward": wards,
    }
    np.savez(tmp_path / "mine.npz", **arrays)
    asked = {"data": tmp_path / "mine.npz", "group_column": "ward", "score": "false-negatives"}
    settings, _ = simulated_settings(config(**asked, groups="north,south", seed=1), owners=2)
    made = replace(MADE, variant="per-group", threshold=0.9, by="group", strata=parts(**limits))
    measured = Measurements(settings, owners=2).of(made)
    # Of 2,000 records a share of three labels has a standard error of at most 0.007.
    assert measured["coverage"] == pytest.approx(0.7, abs=0.035)
    largest = Measurements(settings, owners=2).of(replace(made, strata=()))
    assert largest["coverage"] == pytest.approx(0.9, abs=0.035)
    assert float(measured["mean_size"] or 0) < float(largest["mean_size"] or 0)


@pytest.mark.parametrize("score", ["false-negatives", "own-loss values=20"])
def test_evaluate_measures_risks_at_the_threshold_of_their_group(score: str) -> None:
    """As the threshold of each is measured on its own, and their mean is the whole."""
    held, losses = many_labels(6_000, 2), np.random.default_rng(1).random((6_000, 1))
    groups = np.repeat(["north", "south"], 3_000)
    of_labels = score == "false-negatives"
    hard = np.linspace(1, 0, 20) * losses ** np.where(groups == "north", 1, 4)[:, None]
    found = evaluate(
        held.chances if of_labels else None,
        np.where((groups == "north")[:, None], held.flags, False) if of_labels else hard,
        score=score,
        method="bits:per-group",
        groups=groups,
        epsilon=8.0,
        alpha=0.2,
        trials=1,
        seed=1,
    )
    (one,) = found.trials
    assert len({part.threshold for part in one.parts}) == 2
    sizes = np.array([part.records for part in one.parts])
    assert one.coverage == pytest.approx(sizes @ [p.coverage for p in one.parts] / sizes.sum())
    assert one.size == pytest.approx(sizes @ [p.size for p in one.parts] / sizes.sum())


def test_coverage_of_owners_adds_up_to_coverage_of_all(tmp_path: Path) -> None:
    """Weighted by their test records; the table has a line for each of twelve owners."""
    path = write_probabilities(tmp_path / "mine.npz")
    settings, _ = simulated_settings(config(data=path, owner_column="hospital", seed=1), owners=12)
    row = Measurements(settings, owners=12).non_private(alpha=0.1)
    for name in ("coverage", "mean_size"):
        weighted = sum(one[name] * one["test_records"] for one in row["owners"] if name in one)
        tested = sum(one["test_records"] for one in row["owners"])
        assert np.isclose(weighted / tested, row[name])
    assert [one["owner"] for one in row["owners"]] == list(HOSPITALS)
    assert sum(one["records"] for one in row["owners"]) == row["n"] == N * 3 // 4
    head, _, *lines = owners_text([row]).splitlines()
    assert head.split() == ["owner", "records", "test", "non-private"]
    assert len(lines) == 12
    many = [row, row | {"campaign": "bits:certified"}]
    *short, hidden, left_out = owners_text(many, width=50, most=3).splitlines()
    assert len(short) == 5
    assert (hidden, left_out) == (
        "and 9 more owners, in the report",
        "left out at 50 columns: non-private",
    )


def test_what_the_records_of_a_user_cannot_do_is_said(tmp_path: Path) -> None:
    """Every error says what was found and what is accepted, before a node is asked."""
    probs, labels = predictions()
    features = write_features(tmp_path / "mine.csv")
    model = write_model(tmp_path / "model.onnx")
    whole = write_probabilities(tmp_path / "mine.npz")
    bad = write_probabilities(tmp_path / "bad.npz", labels=labels[:N] + 3)
    few = write_probabilities(
        tmp_path / "few.npz", probs=probs[:90], labels=labels[:90], hospital=None
    )
    none = write_probabilities(tmp_path / "none.npz", labels=None)
    short = write_probabilities(tmp_path / "short.npz", hospital=np.array(["a"]))
    by_column = {"data": whole, "owner_column": "hospital"}
    for given, said in (
        ({"data": tmp_path / "mine.txt"}, "ends in '.txt'; accepted are .npz"),
        ({"data": tmp_path / "missing.csv"}, "does not exist"),
        ({"data": "mine.csv"}, "accepted is an absolute path"),
        ({"owner_column": "hospital"}, "owner-column is 'hospital' without data"),
        ({"data": whole, "owner_column": "clinic"}, "missing: clinic"),
        ({"data": short, "owner_column": "hospital"}, "2500 labels and hospital of shape"),
        ({"data": none}, "missing: label"),
        (
            {"data": features},
            "holds something else than numbers.*owner-column .--owner-column. says so",
        ),
        (
            {"data": features, "owner_column": "hospital"},
            "labels:certified needs a model's results",
        ),
        ({"data": whole, "model_file": model}, "holds no features that it could run on"),
        ({"data": bad}, "labels from 3 to 28, and the model 26 outputs"),
        ({"data": few}, "68 of 90 records are dealt, and a certificate needs at least 100"),
        ({"data": whole, "test_share": 1.0}, "test-share is 1; accepted"),
        ({"data": whole, "campaigns": "training:federated-averaging"}, "which trainings need"),
        (by_column | {"sizes": "1 2"}, "says who holds what"),
        (by_column | {"owners": 5}, "5 nodes, and column 'hospital' of mine.npz names 12"),
    ):
        owners = int(str(given.pop("owners", 12)))
        with pytest.raises(BadInput, match=said):
            simulated_settings(config(**given), owners=owners)


def test_a_file_of_the_providers_records_makes_the_ladder(tmp_path: Path) -> None:
    """Thresholds even in set size, in the plan, from probabilities or from features with the model;
    they ascend to 1."""
    features, _ = owned()
    np.savez(tmp_path / "own.npz", features=features[:500])
    np.savez(tmp_path / "probs.npz", probs=predictions()[0][:500])
    ladders = []
    for given in (
        {"provider_data": tmp_path / "probs.npz"},
        {"provider_data": tmp_path / "own.npz", "scoring": "aggregator"},
    ):
        settings, _ = simulated_settings(config(**given), owners=3)
        assert settings["ladder"][-1] == 1
        assert (np.diff(settings["ladder"]) > 0).all()
        ladders.append(settings["ladder"])
    np.testing.assert_allclose(ladders[0][:30], ladders[1][:30], atol=1e-4)
