import logging
import multiprocessing
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.client.records.records import Records
from confide.client.records.score_cache import probabilities
from confide.protocol.errors import BadInput
from confide.protocol.models.model_file import Model
from confide.protocol.models.scorer import STEP
from tests.support.networks.graphs import (
    WEIGHTS,
    linear,
    model,
    network,
    node,
    not_a_number,
    one_by_one,
    proto,
)

NETWORK = network(4, 8, 3)
FEATURES = np.random.default_rng(2).normal(size=(30, 4)).astype(np.float32)
BROKEN = model(proto([node("Loop", ["x"], ["q"]), *linear()]))


def records(features: NDArray[Any] = FEATURES, labels: NDArray[Any] | None = None) -> Records:
    labels = np.zeros(len(features), dtype=np.int64) if labels is None else labels
    return Records(
        tuple(str(i).encode() for i in range(len(features))), None, labels, None, features
    )


def score(
    folder: Path | None, features: NDArray[Any] = FEATURES, **options: Any
) -> tuple[NDArray[Any], int, int]:
    """The probabilities, how often the model was run for them, and how many records it scored."""
    told: list[int] = [0]
    found = probabilities(
        records(features),
        NETWORK,
        labels=3,
        cache=folder,
        progress=lambda done, _: told.append(done),
        **options,
    )
    return found, len(told) - 1, told[-1]


FRESH = one_by_one(NETWORK.open(), FEATURES, 3)


def only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_probabilities_that_came_with_the_records_are_returned() -> None:
    """They need no model, but must be of as many labels."""
    given = Records((b"a",), np.array([[0.25, 0.75]]), np.array([7]))
    assert np.array_equal(probabilities(given, None, labels=2), [[0.25, 0.75]])
    with pytest.raises(BadInput, match="of 2 labels; accepted are 3"):
        probabilities(given, None, labels=3)


def test_features_need_a_model() -> None:
    """Without one the message says so."""
    with pytest.raises(BadInput, match="name the model"):
        probabilities(records(), None, labels=3)


def test_scores_from_the_cache_are_the_fresh_ones(tmp_path: Path) -> None:
    """A second round, and one with other labels, has the same bits and does not open the model; the
    folder is the owner's."""
    folder = tmp_path / "new" / "scores"
    for _ in range(2):
        assert np.array_equal(score(None)[0], FRESH)
    first, times, scored = score(folder)
    assert (times, scored) == (1, len(FEATURES))
    assert np.array_equal(first, FRESH)
    again, times, _ = score(folder)
    assert times == 0
    assert np.array_equal(again, FRESH)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert only(folder).stat().st_mode & 0o777 == 0o600
    relabelled = records(labels=np.arange(len(FEATURES)))
    assert np.array_equal(probabilities(relabelled, NETWORK, labels=3, cache=folder), FRESH)


def test_a_grown_file_costs_its_new_rows(tmp_path: Path) -> None:
    """Rows that were scored before are found wherever they stand now; those that are gone are
    forgotten."""
    score(tmp_path, FEATURES[:20])
    found, times, scored = score(tmp_path, FEATURES[::-1])
    assert (times, scored) == (1, 10)
    assert np.array_equal(found, FRESH[::-1])
    assert score(tmp_path, FEATURES[5:8])[1:] == (0, 0)
    assert score(tmp_path, FEATURES)[2] == len(FEATURES) - 3


def test_equal_rows_share_a_score(tmp_path: Path) -> None:
    """Two records of equal features are two rows."""
    twice = np.concatenate([FEATURES, FEATURES])
    for _ in range(2):
        assert np.array_equal(score(tmp_path, twice)[0], np.concatenate([FRESH, FRESH]))


def test_number_types_and_shapes_are_told_apart(tmp_path: Path) -> None:
    """Equal bytes of another type are other features."""
    score(tmp_path)
    _, times, scored = score(tmp_path, FEATURES.view(np.int32))
    assert (times, scored) == (1, len(FEATURES))


def test_models_labels_and_ways_of_scoring_have_their_own_files(tmp_path: Path) -> None:
    """What was scored for one is not taken for another."""
    score(tmp_path)
    assert score(tmp_path, vetted=True)[1] == 1
    probabilities(records(), network(4, 9, 3), labels=3, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    with pytest.raises(BadInput, match="has 3 outputs; accepted is one for each of 4 labels"):
        probabilities(records(), NETWORK, labels=4, cache=tmp_path)
    with pytest.raises(BadInput, match="operator Loop"):
        probabilities(records(), BROKEN, labels=3, cache=tmp_path)


def test_a_vetted_model_sees_batches(tmp_path: Path) -> None:
    """A model that subtracts the mean of all rows gives something else to one record than to
    many."""
    centred = model(
        proto(
            [
                node("ReduceMean", ["x"], ["m"], axes=[0]),
                node("Sub", ["x", "m"], ["c"]),
                *linear(entry="c"),
            ]
        )
    )
    pairs = FEATURES[:, :2]
    alone = probabilities(records(pairs), centred, labels=3, cache=tmp_path)
    together = probabilities(records(pairs), centred, labels=3, vetted=True, cache=tmp_path)
    assert np.array_equal(alone, np.full((30, 3), 1 / 3, dtype=np.float32))
    logits = (pairs - pairs.mean(axis=0)) @ WEIGHTS
    np.testing.assert_allclose(
        together, np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), rtol=1e-4
    )


def overwrite(path: Path, change: Callable[[bytearray], Any]) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


def flip(at: int) -> Callable[[bytearray], Any]:
    return lambda content: content.__setitem__(at, content[at] ^ 1)


DAMAGE: dict[str, Callable[[bytearray], Any]] = {
    "empty": bytearray.clear,
    "short": lambda c: c.__delitem__(slice(20, None)),
    "cut": bytearray.pop,
    "without a row": lambda c: c.__delitem__(slice(-28, None)),
    "longer": lambda c: c.extend(bytes(28)),
    "foreign": lambda c: c.__setitem__(slice(None), b"PK\x03\x04" * 200),
    "checksum": flip(0),
    "digest": flip(20),
    "name": flip(40),
    "probability": flip(-2),
    "last": flip(-1),
}


@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_damaged_cache_is_ignored_and_rewritten(damage: str, tmp_path: Path) -> None:
    """Whatever happened to the file, the scores are the fresh ones, and the next round is cached
    again."""
    score(tmp_path)
    whole = only(tmp_path).read_bytes()
    overwrite(only(tmp_path), DAMAGE[damage])
    found, times, scored = score(tmp_path)
    assert (times, scored) == (1, len(FEATURES))
    assert np.array_equal(found, FRESH)
    assert only(tmp_path).read_bytes() == whole


@pytest.mark.parametrize("value", [np.nan, -0.5, 3.0])
def test_a_cache_of_other_numbers_is_not_trusted(value: float, tmp_path: Path) -> None:
    """A file whose checksum is right and whose rows are no probabilities is rewritten."""
    score(tmp_path)
    rest = only(tmp_path).read_bytes()[4:-4] + np.float32(value).tobytes()
    key = b"confide scores 1" + NETWORK.digest + (3).to_bytes(4, "little") + b"\0"
    only(tmp_path).write_bytes(zlib.crc32(key + rest).to_bytes(4, "little") + rest)
    found, times, _ = score(tmp_path)
    assert times == 1
    assert np.array_equal(found, FRESH)


def test_another_models_file_is_not_trusted(tmp_path: Path) -> None:
    """A cache file under another model's name is rewritten."""
    probabilities(records(), network(4, 9, 3), labels=3, cache=tmp_path)
    other = only(tmp_path)
    score(tmp_path)
    (own,) = set(tmp_path.iterdir()) - {other}
    own.write_bytes(other.read_bytes())
    assert np.array_equal(score(tmp_path)[0], FRESH)


def test_a_folder_that_cannot_be_written_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The scores are returned, and the owner's log says that they are not kept."""
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        assert np.array_equal(score(tmp_path / "file")[0], FRESH)
    assert "not kept" in caplog.text


def test_the_owner_is_told_of_records_without_a_result(caplog: pytest.LogCaptureFixture) -> None:
    """A model that yields no numbers makes all scores alike; only the owner's log says so."""
    with caplog.at_level(logging.WARNING):
        probabilities(records(), NETWORK, labels=3)
        assert caplog.text == ""
        probabilities(records(np.ones((30, 2))), Model.of(not_a_number()), labels=2)
    assert "30 of 30 records have the same score" in caplog.text


def test_progress_is_told_every_few_thousand_records() -> None:
    """How many are done of how many."""
    told: list[tuple[int, int]] = []
    many = records(np.zeros((STEP + 5, 4)))
    probabilities(many, NETWORK, labels=3, progress=lambda done, of: told.append((done, of)))
    assert told == [(STEP, STEP + 5), (STEP + 5, STEP + 5)]


def test_no_records_have_no_scores(tmp_path: Path) -> None:
    """An empty file gives an empty table, cached or not."""
    for folder in (None, tmp_path, tmp_path):
        assert score(folder, FEATURES[:0])[0].shape == (0, 3)


def repeat(folder: Path, offset: int) -> None:
    """Score windows of the records through one cache, and fail if a score is not the fresh one."""
    for _ in range(3):
        for start in range(offset, 20, 9):
            part = slice(start, start + 10)
            if not np.array_equal(
                probabilities(records(FEATURES[part]), NETWORK, labels=3, cache=folder), FRESH[part]
            ):
                raise SystemExit(1)


def test_two_processes_share_a_cache(tmp_path: Path) -> None:
    """Each replaces the other's file all the time, and neither reads a wrong score or leaves
    anything behind."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=repeat, args=(tmp_path, offset)) for offset in (0, 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(list(tmp_path.iterdir())) == 1
