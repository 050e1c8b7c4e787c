"""Records with targets: what files may hold, and what models return for them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from confide.client.records.reader import read_records
from confide.client.records.score_cache import predictions
from confide.protocol.errors import BadInput
from confide.protocol.models.model_file import Model
from confide.protocol.scores.regression import AbsoluteResidual
from confide.protocol.scores.task import CLASSIFICATION, REGRESSION
from tests.support.networks.graphs import network
from tests.support.truth.regressions import BOUND, number_model, numbers, write_numbers

TABLE: dict[str, list[Any]] = {
    "id": ["anna", "ben", "cleo"],
    "target": [1.5, -2.0, 1e30],
    "prediction": [1.0, -1.0, 0.0],
    "lower": [0.0, -2.0, -1.0],
    "upper": [2.0, 0.0, 1.0],
}


def write(path: Path, table: dict[str, list[Any]]) -> Path:
    if path.suffix == ".npz":
        arrays: dict[str, Any] = {name: np.array(values) for name, values in table.items()}
        np.savez(path, **arrays)
    elif path.suffix == ".parquet":
        pq.write_table(pa.table(table), path)
    else:
        rows = zip(*table.values(), strict=True)
        lines = [",".join(table), *(",".join(map(str, row)) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_targets_and_named_results_are_read_from_every_format(suffix: str, tmp_path: Path) -> None:
    """Predictions and quantiles may stand in one file; each score reads its own columns."""
    found = read_records(write(tmp_path / f"r{suffix}", TABLE))
    assert (found.task, found.columns) == (REGRESSION, ("prediction", "lower", "upper"))
    assert found.truth.tolist() == TABLE["target"]
    pair = predictions(found, None, columns=("lower", "upper"))
    assert pair.tolist() == [[0.0, 2.0], [-2.0, 0.0], [-1.0, 1.0]]
    assert predictions(found, None, columns=("prediction",)).tolist() == [[1.0], [-1.0], [0.0]]
    with pytest.raises(BadInput, match="no features"):
        predictions(found, None, columns=("prediction", "scale"))


def test_a_missing_target_or_prediction_is_no_error(tmp_path: Path) -> None:
    """An error would tell of one record; its score is 1, and that of the others is as ever."""
    text = "id,target,prediction\n1,,0\n2,3,nan\n3,inf,0\n4,3,2\n5,1e300,-1e300\n"
    (tmp_path / "r.csv").write_text(text)
    found = read_records(tmp_path / "r.csv")
    assert found.results is not None
    scores = AbsoluteResidual(BOUND).owned_scores(found.results, found.truth, u=None)
    assert scores.tolist() == [1.0, 1.0, 1.0, 0.1, 1.0]


def test_files_with_labels_are_read_as_before(tmp_path: Path) -> None:
    """There, columns named like predictions are features."""
    table: dict[str, list[Any]] = {
        "id": [1, 2],
        "label": [0, 1],
        "prediction": [0.5, 0.1],
        "lower": [1, 2],
    }
    found = read_records(write(tmp_path / "r.csv", table))
    assert found.task == CLASSIFICATION
    assert found.features is not None
    assert found.features.shape == (2, 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": None}, "missing: label or target; accepted is one of label"),
        ({"label": [0, 1, 1]}, "together: label, target; accepted is one of"),
        ({"prediction": None, "upper": None, "lower": None}, "missing: prediction, or lower"),
        ({"target": ["a", "b", "c"]}, "column 'target' holds something else than numbers"),
        ({"prediction": ["1", "2", "x"]}, "column 'prediction' holds something else"),
    ],
)
def test_files_without_what_a_score_needs_are_refused(
    changes: dict[str, list[Any] | None], said: str, tmp_path: Path
) -> None:
    """The message says what the file has and what is accepted."""
    table = {name: values for name, values in (TABLE | changes).items() if values is not None}
    with pytest.raises(BadInput, match=said):
        read_records(write(tmp_path / "r.csv", table))


def test_arrays_of_another_shape_are_refused(tmp_path: Path) -> None:
    """Of targets, and of predictions for them."""
    for arrays, said in (
        ({"target": np.ones((3, 2)), "prediction": np.ones(3)}, "targets have shape"),
        ({"target": np.array(["1", "2", "3"]), "prediction": np.ones(3)}, "targets are of type"),
        ({"target": np.ones(3), "prediction": np.ones((3, 2))}, "accepted is a number a target"),
        ({"target": np.ones((3, 1)), "features": np.ones((2, 4))}, "3 targets for 2 rows"),
    ):
        np.savez(tmp_path / "r.npz", id=np.arange(3), **arrays)
        with pytest.raises(BadInput, match=said):
            read_records(tmp_path / "r.npz")


@pytest.mark.parametrize("vetted", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_a_model_of_one_number_predicts_features(flat: bool, vetted: bool, tmp_path: Path) -> None:
    """One number a record as (n, 1) or (n,), one record at a time or together; read again from the
    folder without the model."""
    given = numbers(300, 1)
    found = read_records(write_numbers(tmp_path / "r.csv", given, features=True))
    model = number_model(flat=flat)
    asked: dict[str, Any] = {"vetted": vetted, "cache": tmp_path / "cache"}
    first = predictions(found, model, columns=("prediction",), **asked)
    np.testing.assert_allclose(first[:, 0], given.predictions, rtol=1e-5, atol=1e-5)
    ended: list[int] = []
    again = predictions(
        found,
        model,
        columns=("prediction",),
        progress=lambda done, of: ended.append(done),
        **asked,
    )
    assert np.array_equal(first, again)
    assert not ended
    with pytest.raises(BadInput, match="the model has 1 outputs; accepted is one for each of 2"):
        predictions(found, model, columns=("lower", "upper"), **asked)


def test_no_number_is_no_error_but_score_1(tmp_path: Path) -> None:
    """A model that returns NaN for some records gets no exception and no gap: they score 1, also
    when they come from the folder."""
    given = numbers(200, 2)
    found = read_records(write_numbers(tmp_path / "r.csv", given, features=True))
    model = number_model(failing=True)
    for _ in range(2):
        made = predictions(found, model, columns=("prediction",), cache=tmp_path / "cache")
        bad = given.features[:, 0] < 0
        assert np.isnan(made[bad]).all()
        assert np.isfinite(made[~bad]).all()
        scores = AbsoluteResidual(BOUND).owned_scores(made, found.truth, u=None)
        assert (scores[bad] == 1).all()
        assert scores[~bad].max() < 1


def test_caches_of_labels_and_of_numbers_do_not_mix(tmp_path: Path) -> None:
    """The same model and width under another reading is another file; a damaged one is made
    again."""
    given = numbers(50, 3)
    found = read_records(write_numbers(tmp_path / "r.csv", given, features=True))
    model: Model = network(2, 4, 2)
    made = predictions(found, model, columns=("lower", "upper"), cache=tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    assert file.suffix == ".predictions"
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\x80\x7f")
    again = predictions(found, model, columns=("lower", "upper"), cache=tmp_path / "cache")
    assert np.array_equal(made, again)
