"""Advice: which methods are allowed, in which order, and what they need."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from confide.protocol.errors import BadInput
from confide.simulation.advice.advise import Advice, ScoreCurves, advise, ranked
from confide.simulation.advice.curves import assumed
from confide.simulation.advice.question import AdviceQuestion
from confide.simulation.advice.search import least_epsilon, records_needed, rounded_up
from confide.simulation.cli import app
from confide.simulation.data.population import Predictions
from confide.simulation.data.synthetic import softmax_records
from tests.support.programs.simulation import in_process

EVERYTHING = {"owner_has_model": True, "features_may_leave": True, "trusted_aggregator": True}


@cache
def population() -> Predictions:
    return Predictions("six", *softmax_records(3_000, np.random.default_rng(3), labels=6))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "six.npz"
    np.savez(path, probs=population().results, labels=population().truth)
    return path


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["advise", *map(str, arguments)])


def ranking(**given: object) -> Advice:
    asked: dict[str, object] = {"records": 4_000, "epsilon": 4.0, "score": "hps", **given}
    return ranked(ScoreCurves(population()), AdviceQuestion(**asked))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "best", "refused"),
    [
        (EVERYTHING, "central:trusted", {}),
        (
            {"owner_has_model": True},
            "bits:certified",
            {"labels:certified": "leave in clear", "central:trusted": "not trusted"},
        ),
        ({"owner_has_model": True, "rounds": 1}, "bits:one-shot", {"bits:certified": "8 rounds"}),
        ({"features_may_leave": True}, "labels:certified", {"bits:certified": "no model"}),
        ({}, None, {"bits:one-shot": "no model", "labels:certified": "leave in clear"}),
    ],
)
def test_what_owners_allow_decides(
    given: dict[str, object], best: str | None, refused: dict[str, str]
) -> None:
    """The best is the allowed method with the smallest sets; what is not allowed stands last and
    says what would be needed."""
    advice = ranking(**given)
    assert (advice.best.method if advice.best else None) == best
    allowed = [one for one in advice.options if one.refusal is None]
    sizes = [one.expected.size for one in allowed]
    assert sizes == sorted(sizes)
    assert [*advice.options[: len(allowed)]] == allowed
    why = {one.method: one.why for one in advice.options}
    assert all(words in why[name] for name, words in refused.items())


def test_an_aggregator_that_scores_pays_for_one_value_more() -> None:
    """Owners without a model answer through a channel over k + 1 values."""
    sizes = [
        next(
            one.expected.size
            for one in ranking(features_may_leave=True, owner_has_model=model).options
            if one.method == "labels:certified"
        )
        for model in (True, False)
    ]
    assert sizes[0] < sizes[1]


def test_a_wanted_size_gives_the_least_epsilon() -> None:
    """Without an epsilon methods are compared at the least that gives the size, and there the best
    one does."""
    asked = AdviceQuestion(records=4_000, size=2.0, owner_has_model=True, score="hps")
    advice = advise(population(), asked)
    best = advice.best
    assert best is not None
    assert best.least_epsilon == advice.epsilon
    assert best.expected.size <= 2.06
    lower = ranking(epsilon=advice.epsilon * 0.8, owner_has_model=True).best
    assert lower is not None
    assert lower.expected.size > 2.0
    assert best.records_needed is not None
    assert 3_000 < best.records_needed < 4_700
    with pytest.raises(BadInput, match="sets without privacy hold"):
        advise(population(), AdviceQuestion(records=4_000, size=1.0, owner_has_model=True))
    with pytest.raises(BadInput, match="no allowed method"):
        advise(population(), AdviceQuestion(records=100, size=1.9, owner_has_model=True))


def test_searches_find_where_a_known_size_is_reached() -> None:
    """Of size 1 + 100/(epsilon sqrt(n)): solved by hand, and rounded up to two digits."""

    def size(n: int, epsilon: float) -> float:
        return 1 + 100 / (epsilon * n**0.5)

    assert 1.0 <= (least_epsilon(size, 10_000, wanted=2.0) or 0) <= 1.1
    needed = records_needed(size, 1.0, wanted=2.0)
    assert needed is not None
    assert 10_000 <= needed <= 11_000
    assert least_epsilon(size, 25, wanted=1.5) is None
    assert [rounded_up(x) for x in (1.01, 123.0, 0.0301)] == [1.1, 130.0, 0.031]


def test_the_command_advises_and_writes(file: Path, tmp_path: Path) -> None:
    """Table, reasons, the file that sizes come from, simulated sizes, a picture and JSON."""
    picture, written = tmp_path / "sizes.svg", tmp_path / "advice.json"
    asked = ["--records", "2000", "--epsilon", "4", "--owner-has-model", "--score", "hps"]
    more = ["--simulate", "--trials", "2", "--seed", "1"]
    files = "--data", file, "--picture", picture, "--json", written
    run = command(*asked, *more, *files)
    assert run.exit_code == 0, run.output
    assert "Take bits:certified with score" in run.output
    assert "not allowed: exact counts would leave" in " ".join(run.output.split())
    assert "an assumption" not in run.output
    advice = json.loads(written.read_text())
    simulated = {one["method"]: one["simulated"] for one in advice["options"]}
    assert simulated["labels:certified"] is None
    assert 1.5 < simulated["bits:certified"] < 6
    assert picture.read_text().lstrip().startswith("<?xml")
    few = "--records", "500", "--epsilon", "4", "--classes", "3", "--score", "raps"
    assert "an assumption" in command(*few).output


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--records", "5", "--epsilon", "1"], "records is 5"),
        (["--records", "500"], "neither --epsilon nor --size"),
        (["--records", "500", "--epsilon", "-1"], "epsilon"),
        (["--records", "500", "--epsilon", "1", "--score", "nonsense"], "score is"),
        (["--records", "500", "--epsilon", "1", "--picture", "x.gif"], "accepted: .svg"),
        (
            ["--records", "500", "--epsilon", "1", "--json", "no/x.json"],
            "its folder does not exist",
        ),
        (["--records", "20000", "--epsilon", "1", "--simulate"], "accepted are fewer"),
        (["--records", "500", "--epsilon", "1", "--classes", "7", "--data", "FILE"], "has 6"),
    ],
)
def test_the_command_refuses(file: Path, given: list[str], says: str) -> None:
    """One line that says what was found and what is accepted; exit code 2."""
    run = command(*(str(file) if word == "FILE" else word for word in given))
    assert run.exit_code == 2
    assert says in " ".join(run.output.split())


def test_an_evaluation_ends_with_advice_if_it_matters(file: Path) -> None:
    """Published labels are told of a certified method; bits, which nothing beats, of none."""
    asked = ["--data", str(file), "--trials", "2", "--seed", "1", "--n", "2000"]
    published = [*asked, "--method", "labels", "--variant", "published-star"]
    assert "would give" in in_process(*published).stdout
    assert "would give" not in in_process(*asked, "--epsilon", "4", "--method", "bits").stdout
    written = json.loads(in_process(*published, "--json", "-").stdout)
    assert "at the same epsilon" in written["advice"]


def test_the_assumed_model_has_as_many_classes() -> None:
    """Embedded letters without a number, else a made-up model that is calibrated."""
    assert assumed(None).results.shape[1] == 26
    made = assumed(12)
    assert made.results.shape[1] == 12
    right = made.results.argmax(axis=1) == made.truth
    assert abs(float(right.mean() - made.results.max(axis=1).mean())) < 0.02
