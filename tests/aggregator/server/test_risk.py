"""Campaigns that bound a false-negative rate through a real server, all by commands."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.__main__ import main as confide
from confide.protocol.cards.card import Card
from confide.protocol.cards.page import as_markdown
from confide.protocol.cards.verify.card import verify
from tests.support.owners.owners import PUBLIC
from tests.support.programs.commands import run_main
from tests.support.servers.servers import Place
from tests.support.training.chains import Contributor, published
from tests.support.truth.multi_label import (
    LABELS,
    ManyLabels,
    many_labels,
    missed,
    write_many_labels,
)

OWNERS, N = 2, 1_500
# The most true risk that is no false alarm. Bits promise 0.1 but with probability 1e-4; counts on
# average, and the risk of 3,000 records has a standard deviation below 0.0055, so more than 0.13
# has a probability below 1e-7.
CAMPAIGNS = {"bits:certified": (6.0, 0.1), "central:owner-noised": (4.0, 0.13)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("risk") / "aggregator")
    yield made
    made.close()


@pytest.fixture(scope="module")
def held() -> ManyLabels:
    return many_labels(OWNERS * N, 5)


@pytest.fixture(scope="module")
def cards(place: Place, held: ManyLabels) -> dict[str, Card]:
    """The card of every campaign, as an owner fetches it."""
    server, owners = place.serve(), []
    for number in range(OWNERS):
        folder = place.folder.parent / str(number)
        folder.mkdir()
        own = slice(number * N, (number + 1) * N)
        mine = ManyLabels(held.chances[own], held.flags[own])
        file = write_many_labels(folder / "records.csv", mine, number * N)
        owners.append(
            Contributor(folder, place, file, models=f'["{"ab" * 32}"]', epsilon_per_campaign="6.0")
        )
    return {name: published(server, owners, settings(name)) for name in CAMPAIGNS}


def settings(name: str) -> dict[str, Any]:
    """The options of `campaign create`."""
    asked: dict[str, Any] = {
        "--campaign": name,
        "--score": "false-negatives",
        "--labels": LABELS,
        "--epsilon": CAMPAIGNS[name][0],
        "--records": OWNERS * N,
        "--owners": OWNERS,
        "--model": "ab" * 32,
    }
    if name.startswith("bits"):
        asked["--failure-probability"] = 1e-4
    return asked


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_the_false_negative_rate_is_bounded(name: str, cards: dict[str, Card]) -> None:
    """The card verifies, and its threshold misses no more than it says, on the law of labels."""
    card = cards[name]
    assert all(finding.holds for finding in verify(card, key=PUBLIC))
    released = card.formal["released"]
    assert (released["task"], released["score"]) == ("multi-label", "false-negatives")
    assert 0.5 < released["threshold"] < 1
    assert missed(released["threshold"]) <= CAMPAIGNS[name][1]
    assert "true labels that its set misses is at most 10 %" in as_markdown(card, [])


def test_a_card_predicts_sets_and_measures_what_they_miss(
    cards: dict[str, Card], held: ManyLabels, tmp_path: Path
) -> None:
    """`confide predict` on a file with probabilities and true labels."""
    card, data = cards["bits:certified"], write_many_labels(tmp_path / "new.csv", held, 0)
    (tmp_path / "card.json").write_text(card.to_json())
    out = tmp_path / "sets.jsonl"
    signed = ("--card", tmp_path / "card.json", "--key", PUBLIC.hex())
    done = run_main(confide, "predict", *signed, "--data", data, "--out", out)
    assert (done.returncode, "of a record's true labels" in done.stdout) == (0, True), done.stderr
    sets = np.zeros(held.flags.shape, dtype=bool)
    for i, line in enumerate(out.read_text().splitlines()):
        sets[i, json.loads(line)["labels"]] = True
    share = ((held.flags & ~sets).sum(axis=1) / held.flags.sum(axis=1)).mean()
    assert share == pytest.approx(missed(card.formal["released"]["threshold"]), abs=0.02)
