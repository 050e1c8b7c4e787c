"""Campaigns over numbers through a real server: three owners with csv files, all by commands."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.keys import SIGNING_KEY
from confide.aggregator.procedures.nonprivate import split_conformal
from confide.protocol.cards.card import Card
from confide.protocol.cards.page import as_html, as_markdown
from confide.protocol.cards.verify.card import verify
from confide.protocol.prediction.predictor import Predictor
from confide.protocol.scores.regression import AbsoluteResidual
from tests.support.owners.owners import PUBLIC
from tests.support.servers.operating import said as command_said
from tests.support.servers.servers import Place, Running, client, eventually
from tests.support.training.chains import Contributor, opened, published
from tests.support.truth.regressions import (
    BOUND,
    SCORE,
    Numbers,
    band_coverage,
    bands,
    coverage,
    number_model,
    numbers,
    write_numbers,
)

OWNERS, N = 3, 1_500
# Each with its epsilon, and the least true coverage that is no false alarm. Bits promise 0.9 but
# with probability 1e-4. Counts promise it on average: coverage of 4,500 records has a standard
# deviation of 0.0045, so less than 0.87 has a probability below 1e-10.
CAMPAIGNS = {
    "bits:certified": (6.0, 0.9),
    "central:trusted": (1.0, 0.87),
    "central:owner-noised": (4.0, 0.87),
}
MODEL = number_model()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("regression") / "aggregator")
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(place: Place) -> Running:
    return place.serve()


@pytest.fixture(scope="module")
def held() -> Numbers:
    return numbers(OWNERS * N, 11)


@pytest.fixture(scope="module")
def owners(place: Place, held: Numbers) -> list[Contributor]:
    """Two owners whose files have predictions, quantiles and scales, and one with features and the
    model."""
    made = []
    for number in range(OWNERS):
        folder = place.folder.parent / str(number)
        folder.mkdir()
        mine = held.at(slice(number * N, (number + 1) * N))
        features, more = number == 2, {} if number == 2 else bands(mine)
        file = write_numbers(folder / "records.csv", mine, features=features, **more)
        allowed = {"models": f'["{MODEL.digest.hex()}"]', "epsilon_per_campaign": "6.0"}
        allowed["epsilon_per_record"] = "40.0"
        made.append(Contributor(folder, place, file, **allowed))
    return made


def settings(name: str) -> dict[str, Any]:
    """The options of `campaign create`, with a score of numbers and no number of labels."""
    asked = {
        "--campaign": name,
        "--score": SCORE,
        "--records": OWNERS * N,
        "--owners": OWNERS,
        "--model": MODEL.digest.hex(),
        "--epsilon": CAMPAIGNS[name][0],
    }
    if name.startswith("bits"):
        asked["--failure-probability"] = 1e-4
    return asked


@pytest.fixture(scope="module")
def cards(place: Place, server: Running, owners: list[Contributor]) -> dict[str, Card]:
    """The card of every campaign, as an owner fetches it."""
    # The owner with features gets the model from the aggregator.
    place.store.keep_model(MODEL.data)
    return {name: published(server, owners, settings(name)) for name in CAMPAIGNS}


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_targets_end_in_intervals_that_keep_the_promise(
    name: str, cards: dict[str, Card], held: Numbers
) -> None:
    """The card is verified, names the interval in the target's unit, covers what it promises on
    the law of the targets, and its intervals are not much wider than those without privacy."""
    card = cards[name]
    assert all(finding.holds for finding in verify(card, key=PUBLIC))
    released = card.formal["released"]
    assert (released["task"], released["labels"], released["score"]) == ("regression", 0, SCORE)
    assert released["reach"] == released["threshold"] * BOUND
    assert coverage(released["reach"]) >= CAMPAIGNS[name][1]
    own = AbsoluteResidual(BOUND).true_scores(held.predictions, held.targets)
    plain = split_conformal(own, alpha=0.1).threshold
    assert released["threshold"] < 1.6 * plain


@pytest.mark.parametrize("score", ["cqr", "normalised-residual"])
@pytest.mark.parametrize("name", ["bits:certified", "central:trusted"])
def test_quantiles_and_scales_end_in_intervals_that_keep_the_promise(
    name: str, score: str, server: Running, owners: list[Contributor]
) -> None:
    """Of the columns of a file each score reads its own. The card names the interval in the
    target's unit, covers what it promises on the law of the targets, and predicts new records; its
    intervals are not much wider than those that cover 90 % of that law."""
    asked = {"--score": f"{score} bound={BOUND:g}", "--records": 2 * N, "--owners": 2}
    card = published(server, owners[:2], settings(name) | asked)
    assert all(finding.holds for finding in verify(card, key=PUBLIC))
    reach = card.formal["released"]["reach"]
    assert CAMPAIGNS[name][1] <= band_coverage(score, reach)
    exact = min(r for r in np.linspace(0, 3, 3001) if band_coverage(score, r) >= 0.9)
    half = 0.5 if score == "cqr" else 0.0
    assert half + reach < 1.6 * (half + exact)
    new = numbers(4_000, 13)
    found = bands(new)
    given = [found["lower"], found["upper"]]
    if score != "cqr":
        given = [new.predictions, found["scale"]]
    low, high = Predictor.from_card(card, key=PUBLIC).predict_interval(np.stack(given, axis=1)).T
    far = 0.5 + reach if score == "cqr" else reach * found["scale"]
    np.testing.assert_allclose(high - new.predictions, far * np.ones(4_000), atol=1e-6)
    np.testing.assert_allclose(new.predictions - low, far * np.ones(4_000), atol=1e-6)
    # Of 4,000 records, below what the law covers by more than seven standard deviations.
    inside = ((low <= new.targets) & (new.targets <= high)).mean()
    assert inside > band_coverage(score, reach) - 0.04


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_cards_and_predictions_are_in_the_unit_of_targets(
    name: str, cards: dict[str, Card]
) -> None:
    """Page and text say `plus or minus`; the predictor gives these ends for features as well as
    for predictions, and covers new records."""
    card = cards[name]
    words = f"the prediction plus or minus {card.formal['released']['reach']:.4g}"
    findings = verify(card, key=PUBLIC)
    assert words in as_html(card, findings)
    assert words in as_markdown(card, findings)
    new = numbers(4_000, 12)
    plain = Predictor.from_card(card, key=PUBLIC).predict_interval(new.predictions)
    np.testing.assert_allclose(plain.mean(axis=1), new.predictions, atol=1e-9)
    np.testing.assert_allclose(np.ptp(plain, axis=1) / 2, card.formal["released"]["reach"])
    inside = (plain[:, 0] <= new.targets) & (new.targets <= plain[:, 1])
    assert inside.mean() > CAMPAIGNS[name][1] - 0.025


def test_a_lie_about_the_interval_is_found(cards: dict[str, Card]) -> None:
    """A narrower interval than that of the threshold, none at all, and one of labels."""
    text = json.loads(cards["bits:certified"].to_json())
    for change in ({"reach": 1.0}, {"reach": None}, {"task": "classification"}):
        lie = json.loads(json.dumps(text))
        lie["formal"]["released"] |= change
        file = Card(lie["formal"], lie["diagnostic"], lie["provenance"], lie["view"])
        broken = [one.clause for one in verify(file) if not one.holds]
        assert "released/reach" in broken or "released/task" in broken
    lie = json.loads(json.dumps(text))
    del lie["formal"]["released"]["reach"]
    file = Card(lie["formal"], lie["diagnostic"], lie["provenance"], lie["view"])
    assert "released/reach" in [one.clause for one in verify(file) if not one.holds]


def test_plans_that_make_no_sense_are_refused(place: Place) -> None:
    """Labels of numbers, a number of labels, and a score without its bound."""
    for name, more, said in (
        ("labels:certified", (), "accepted are scores of labels"),
        ("labels:published", ("--scoring", "aggregator"), "accepted"),
        ("bits:certified", ("--labels", 5), "labels is 5 with score absolute-residual"),
        ("bits:certified", ("--score", "cqr"), "needs a public bound"),
        ("central:trusted", ("--score", "cqr bound=0"), "bound of score cqr is 0"),
    ):
        code, shown = create_said(place, name, *more)
        assert (code, said in shown) == (2, True), shown


def create_said(place: Place, name: str, *more: Any) -> tuple[int, str]:
    asked = ("--score", SCORE, "--records", 100, "--model", "00" * 32)
    where = ("--key", place.keys / SIGNING_KEY, "--db", place.url)
    return command_said("campaign", "create", "--campaign", name, *asked, *where, *more)


def test_an_owner_is_told_of_the_bound_and_of_what_its_file_lacks(
    place: Place, server: Running, owners: list[Contributor], cards: dict[str, Card]
) -> None:
    """`explain` speaks of targets, their unit and the bound; `doctor` of the targets of a file;
    a file with labels, or without quantiles, is refused here with what is missing."""
    asked = {"--score": "cqr bound=4", "--epsilon": 1}
    campaign = opened(place, settings("bits:certified") | asked)
    one = owners[0]
    at = ("--aggregator", f"127.0.0.1:{server.port}", "--ca", place.keys / "ca.pem")
    mine = ("--campaign", campaign, "--token-file", one.token)
    file = one.home / "plan.bin"
    eventually(lambda: client("plan", *at, *mine, "--out", file)[0] == 0)
    code, shown = client("explain", file, "--home", one.home)
    assert code == 0
    assert "calibrates prediction intervals at 90% coverage" in shown
    assert "cqr bound=4. The bound is public: outside of the lower quantile minus 4" in shown
    code, shown = client("doctor", "--home", one.home, "--records", one.records)
    assert "1500 records with targets from -" in shown
    plain = write_numbers(one.home / "plain.csv", numbers(9, 14))
    done = Contributor.contribute(_with(one, plain), server, campaign)
    assert done.returncode == 2
    assert "reads `lower` and `upper`; accepted is a file with these" in done.stderr
    labelled = one.home / "labels.csv"
    labelled.write_text("id,label,p0,p1\n1,0,0.5,0.5\n")
    done = Contributor.contribute(_with(one, labelled), server, campaign)
    assert done.returncode == 2
    assert "the records are for classification" in done.stderr


def _with(one: Contributor, records: Path) -> Contributor:
    other = object.__new__(Contributor)
    other.home, other.records, other.token = one.home, records, one.token
    return other
