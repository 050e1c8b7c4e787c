"""`confide predict`: from a card and a file to a file of sets or intervals."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

import confide
from confide.__main__ import main as confide_main
from confide.protocol.simulated.embedded import predictions
from tests.support.cards.calibrated import calibrated_card
from tests.support.cards.cards import KEY, OTHER
from tests.support.networks.models import PLAIN, softmax
from tests.support.programs.commands import run_main
from tests.support.programs.predict_command import PUBLIC, predict, read, read_wards

FEATURES = np.random.default_rng(4).normal(size=(3000, 2)).astype(np.float32)
WEIGHTS = np.array([[0.5, -0.5, 0.0], [0.1, 0.2, 0.3]], dtype=np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cards of letters, of a model on features and of numbers, and records in every format."""
    place = tmp_path_factory.mktemp("predict")
    probs, labels = predictions()
    card = calibrated_card(probs[:4000], labels[:4000])
    (place / "card.json").write_text(card.to_json())
    wards = np.random.default_rng(2).choice(np.array(["north", "south"]), 4300)
    grouped = {"method": "labels:per-group", "epsilon": 8.0, "groups": wards[:4000]}
    by_ward = calibrated_card(probs[:4000], labels[:4000], **grouped)
    (place / "wards.json").write_text(by_ward.to_json())
    banded = calibrated_card(probs[:4000], labels[:4000], method="labels", guarantee="band")
    (place / "band.json").write_text(banded.to_json())
    few = calibrated_card(probs[:50], labels[:50], epsilon=0.1)
    (place / "trivial.json").write_text(few.to_json())
    (place / "unsigned.json").write_text(replace(card, key=b"", signature=b"").to_json())
    (place / "foreign.json").write_text(card.sign(OTHER).to_json())
    (place / "seeded.json").write_text(
        confide.calibrate(probs[:2000], labels[:2000], epsilon=4.0, seed=1).card(KEY).to_json()
    )
    new = probs[4000:4300]
    np.savez(place / "new.npz", probs=new, labels=labels[4000:4300])
    columns = {f"p{k}": new[:, k] for k in range(26)}
    names = [f"patient {i}" for i in range(len(new))]
    pyarrow.parquet.write_table(pyarrow.table({"id": names, **columns}), place / "new.parquet")
    with (place / "new.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", *columns])
        rows.writerows([name, *row] for name, row in zip(names, new.tolist(), strict=True))
    with (place / "wards.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "ward", *columns])
        pairs = zip(names, wards[4000:].tolist(), new.tolist(), strict=True)
        rows.writerows([name, ward, *row] for name, ward, row in pairs)
    (place / "model.onnx").write_bytes(PLAIN.data)
    (place / "other.onnx").write_bytes(PLAIN.data + b"\x00")
    scored = softmax(FEATURES @ WEIGHTS)
    truth = np.array([np.random.default_rng(i).choice(3, p=p) for i, p in enumerate(scored)])
    made = calibrated_card(scored, truth, model=place / "model.onnx")
    (place / "features.json").write_text(made.to_json())
    np.savez(place / "features.npz", features=FEATURES[:100])
    targets = np.random.default_rng(1).normal(size=4000)
    bands = np.stack([np.full(4000, -0.5), np.full(4000, 0.5)], axis=1)
    numbers = calibrated_card(bands, targets, score="cqr bound=4")
    (place / "numbers.json").write_text(numbers.to_json())
    (place / "numbers.csv").write_text("id,lower,upper,target\na,-1,1,0\nb,0,2,99\n")
    return place


def test_every_format_gives_the_sets_of_the_predictor(folder: Path) -> None:
    """npz, csv and parquet in; parquet, csv, npz and jsonl out; ids where there are any."""
    predictor = confide.Predictor.from_card(folder / "card.json", key=PUBLIC)
    wanted = predictor.predict_labels(predictions()[0][4000:4300])
    for data in ("new.npz", "new.csv", "new.parquet"):
        for ending in ("parquet", "csv", "npz", "jsonl"):
            done = predict(folder, data=data, out=f"sets.{ending}")
            assert done.returncode == 0, done.stderr
            named, found = read(folder / f"sets.{ending}")
            assert found == wanted
            if data != "new.npz":
                assert named == [f"patient {i}" for i in range(300)]
    assert "300 sets of " in done.stdout


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_that_are_no_results_of_the_model_are_ignored(folder: Path, ending: str) -> None:
    """The file of a federation has a column of owners, and may have others, of text or numbers: the
    sets are those of the probabilities alone, and the columns are named. So for numbers."""
    with (folder / "new.csv").open(newline="") as file:
        rows = [{"hospital": "north", "age": 50.0, "p": 2.0, **row} for row in csv.DictReader(file)]
    table = {name: [row[name] for row in rows] for name in rows[0]}
    for name in table.keys() - {"hospital", "id"}:
        table[name] = list(map(float, table[name]))
    write(folder / f"columns.{ending}", table)
    assert predict(folder, data="new.csv", out="plain.csv").returncode == 0
    done = predict(folder, data=f"columns.{ending}", out="ignored.csv")
    assert (done.returncode, done.stderr) == (0, "ignored: hospital, age, p\n")
    assert read(folder / "ignored.csv") == read(folder / "plain.csv")
    bands: dict[str, list[Any]] = {
        "ward": ["a", "b"],
        "age": [50, 60],
        "lower": [-1, 0],
        "upper": [1.0, 2.0],
    }
    write(folder / f"bands.{ending}", bands)
    done = predict(folder, card="numbers.json", data=f"bands.{ending}", out="bands.npz")
    assert (done.returncode, done.stderr) == (0, "ignored: ward, age\n")
    # A label more than the card has is no column to ignore.
    write(folder / f"more.{ending}", table | {"p26": [0.0] * len(rows)})
    more = predict(folder, data=f"more.{ending}", out="never.csv")
    assert (more.returncode, more.stderr.count("\n")) == (2, 1)
    assert "have 27 columns" in more.stderr


def write(path: Path, table: dict[str, list[Any]]) -> None:
    """Write a table as csv or parquet."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.table(table), path)
        return
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(table)
        rows.writerows(zip(*table.values(), strict=True))


def test_coverage_is_said_where_the_file_knows_the_truth(folder: Path) -> None:
    """And the first records are explained if asked."""
    done = predict(folder, explain=2)
    predictor = confide.Predictor.from_card(folder / "card.json", key=PUBLIC)
    probs, labels = (part[4000:4300] for part in predictions())
    covered = confide.metrics.coverage(predictor.predict_set(probs), labels)
    assert f"they cover {covered:.4f} of the truth" in done.stdout
    assert done.stdout.count("record ") == 2
    assert "  out  " in done.stdout


def test_a_band_predicts_with_the_threshold_of_a_coverage(folder: Path) -> None:
    """What is certified at it is said; more than the band certifies is refused."""
    small = predict(folder, card="band.json", coverage="0.7", out="small.csv")
    large = predict(folder, card="band.json", coverage="0.95", out="large.csv")
    assert "certified for 0.7" in small.stdout
    assert "certified for 0.95" in large.stdout
    sizes = [sum(map(len, read(folder / name)[1])) for name in ("small.csv", "large.csv")]
    assert 0 < sizes[0] < sizes[1]
    refused = predict(folder, card="band.json", coverage="0.9999", out="none.csv")
    assert refused.returncode == 2
    assert "coverage is 0.9999" in refused.stderr
    assert predict(folder, coverage="0.8", out="none.csv").returncode == 2


def test_a_model_turns_features_into_sets(folder: Path) -> None:
    """The model is the card's, to the byte; records are run many at a call."""
    done = predict(
        folder, card="features.json", data="features.npz", model="model.onnx", out="f.npz"
    )
    assert done.returncode == 0, done.stderr
    predictor = confide.Predictor.from_card(
        folder / "features.json", key=PUBLIC, model=folder / "model.onnx"
    )
    assert read(folder / "f.npz")[1] == predictor.predict_labels(FEATURES[:100])
    plain = confide.Predictor(predictor.score, predictor.threshold)
    scored = softmax(FEATURES[:100] @ WEIGHTS)
    assert plain.predict_labels(scored) == predictor.predict_labels(FEATURES[:100])


def test_records_are_predicted_by_the_column_of_their_group(folder: Path) -> None:
    """Or all with the threshold of one group, or with the largest, and not by a group that the card
    does not name."""
    asked = {"card": "wards.json", "data": "wards.csv"}
    done = predict(folder, out="w.npz", explain=2, **asked, **{"group-column": "ward"})
    assert done.returncode == 0, done.stderr
    predictor = confide.Predictor.from_card(folder / "wards.json", key=PUBLIC)
    probs, wards = read_wards(folder)
    wanted = predictor.predict_labels(probs, groups=wards)
    assert read(folder / "w.npz")[1] == wanted
    assert len(set(predictor.group_thresholds.values())) == 2
    whole = predict(folder, out="all.npz", data="new.npz", card="wards.json")
    assert whole.returncode == 0, whole.stderr
    assert read(folder / "all.npz")[1] == predictor.predict_labels(probs)
    wrong = run_main(
        confide_main,
        *("predict", "--card", str(folder / "wards.json"), "--key", PUBLIC, "--part", "east"),
        *("--data", str(folder / "new.npz"), "--out", str(folder / "never.csv")),
    )
    assert (wrong.returncode, (folder / "never.csv").exists()) == (2, False)
    assert "part is 'east'; accepted: north, south" in wrong.stderr


def test_wards_that_a_card_does_not_cover_are_named_before_anything_is_written(
    folder: Path,
) -> None:
    """The warning stands above what was written, also where writing fails."""
    probs, labels = predictions()
    wards = np.repeat(["north", "south", "west"], [2000, 1960, 40])
    asked: dict[str, Any] = {"method": "bits:for-every-group", "epsilon": 8.0, "groups": wards}
    card = calibrated_card(probs[:4000], labels[:4000], group_floor=300, **asked)
    (folder / "covered.json").write_text(card.to_json())
    done = predict(folder, out="covered.npz", card="covered.json")
    assert done.returncode == 0, done.stderr
    said = "WARNING: NOT COVERED: the card claims nothing for records of group west"
    assert said in done.stderr
    failed = predict(folder, out="never.npz", card="covered.json", data="wards.json")
    assert (failed.returncode, (folder / "never.npz").exists()) == (2, False)
    assert said in failed.stderr


def test_intervals_are_written(folder: Path) -> None:
    """A card of numbers gives the ends of intervals; the second target is far outside."""
    done = predict(folder, card="numbers.json", data="numbers.csv", out="i.csv")
    assert done.returncode == 0, done.stderr
    assert "they cover 0.5000" in done.stdout
    with (folder / "i.csv").open(newline="") as file:
        low = [float(row["low"]) for row in csv.DictReader(file)]
    assert low[1] - low[0] == pytest.approx(1.0)


def test_a_trivial_threshold_is_said_before_its_sets_are_written(folder: Path) -> None:
    """They hold every label, whatever the model says, and the contract of the card is not kept."""
    done = predict(folder, card="trivial.json", out="trivial.csv")
    assert done.returncode == 0
    assert "WARNING: the threshold is TRIVIAL" in done.stderr
    assert "300 sets of 26.00 labels in the mean" in done.stdout
    assert read(folder / "trivial.csv")[1] == [[*range(26)]] * 300
    assert "TRIVIAL" not in predict(folder).stderr


def test_a_simulation_is_said_in_capitals(folder: Path) -> None:
    """It is refused without the flag, and warned of with it."""
    done = predict(folder, card="seeded.json", out="s.csv")
    assert done.returncode == 2
    assert "SIMULATION ONLY" in done.stderr
    done = predict(folder, card="seeded.json", out="s.csv", simulation=True)
    assert done.returncode == 0
    assert "WARNING: SIMULATION ONLY" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"card": "unsigned.json"}, "is not signed"),
        ({"card": "foreign.json"}, "does not verify (signer"),
        ({"card": "none.json"}, "cannot be read"),
        ({"key": "00" * 32}, "signer"),
        ({"key": "word"}, "key is 'word'"),
        ({"model": "model.onnx"}, "the card names no model"),
        ({"card": "features.json", "model": "other.onnx", "data": "features.npz"}, "SHA-256"),
        ({"card": "features.json", "data": "features.npz"}, "missing: probs"),
        ({"card": "features.json", "model": "model.onnx"}, "missing: features"),
        ({"card": "numbers.json"}, "missing: lower, upper"),
        ({"data": "none.npz"}, "does not exist"),
        ({"data": "card.json"}, "ends in '.json'"),
        ({"data": "garbage.npz"}, "cannot be read"),
        ({"data": "wrong.npz"}, "sum to 2"),
        ({"data": "unknown.npz"}, "labels run from 99"),
        ({"out": "x.xlsx"}, "accepted: .parquet, .csv, .npz, .jsonl"),
        ({"out": "none/x.csv"}, "its folder does not exist"),
        ({"out": "new.npz"}, "is also read"),
    ],
)
def test_whatever_is_wrong_is_said_before_anything_is_written(
    folder: Path, options: dict[str, Any], words: str
) -> None:
    """One line, exit code 2, and no file."""
    (folder / "garbage.npz").write_bytes(b"PK not a zip")
    probs = predictions()[0][:2]
    np.savez(folder / "wrong.npz", probs=probs * 2)
    np.savez(folder / "unknown.npz", probs=probs, labels=[99, 99])
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = predict(folder, **{"out": "never.csv"} | options)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
