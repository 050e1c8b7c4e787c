"""A run that trains ends early and is started again; `tests/system/test_deployment.py` kills it."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import TooFewOwners, run_training
from confide.aggregator.campaigns.planning.run_plans import DAYS, Plans
from confide.aggregator.campaigns.unfinished import Beginning, UnfinishedRun, unfinished_run
from confide.client.respond import Respondent
from confide.protocol.errors import BadInput
from confide.protocol.plan import round_of
from confide.simulation.defaults import run_defaults
from tests.support.owners.owners import asking, signed
from tests.support.training.federated_trainings import (
    RECORDS,
    in_process,
    learner,
    spent,
    training_plan,
)

OWNERS, NOW = 3, datetime.now(UTC)
GIVEN = {"epsilon": 4.0, "rounds": 4, "listed": False, "timeout": 30.0}


def unfinished(folder: Path, *, run: int = 1, later: float = 0.0, **changes: Any) -> UnfinishedRun:
    fresh = Beginning(run, OWNERS, NOW + timedelta(days=later))
    return UnfinishedRun(folder, GIVEN | changes, fresh)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("loss", [0.0, 0.25])
def test_a_training_goes_on_from_the_rounds_that_were_counted(loss: float, tmp_path: Path) -> None:
    """Stopped in the third round, after one owner has answered: the weights and all that is counted
    are those of an undisturbed training, only what is left is asked, and records pay once."""
    plan = training_plan(**{"loss-share": loss})
    owners = [learner(plan, tmp_path / str(seed), seed=seed) for seed in range(OWNERS)]
    asked: list[int] = []

    def ask(everyone: list[Respondent], stop: int) -> Callable[[bytes], Iterable[Sent]]:
        def answers(query: bytes) -> Iterable[Sent]:
            asked.append(round_of(query))
            for number, sent in enumerate(asking(signed(plan), everyone)(query)):
                if asked[-1] == stop and number == 1:
                    raise Interrupted
                yield sent

        return answers

    first = unfinished(tmp_path)
    with pytest.raises(Interrupted):
        run_training(plan, ask(owners, stop=2), keep=first.begin(plan).before)
    again = unfinished(tmp_path, run=2, later=1)
    assert (first.resumed, again.resumed) == (False, True)
    assert again.beginning == first.beginning
    learned, received = run_training(plan, ask(owners, stop=-1), keep=again.begin(plan).before)
    assert asked == [0, 1, 2, 2, 3]
    expected, counted = in_process(plan, tmp_path / "undisturbed", owners=OWNERS)
    assert np.array_equal(learned.weights, expected.weights)
    assert (learned.owners, learned.errors) == (expected.owners, expected.errors)
    assert received == counted == {"OK": OWNERS * 4}
    assert [spent(tmp_path / str(seed)) for seed in range(OWNERS)] == [(RECORDS, 4.0)] * OWNERS
    again.end()
    assert not (tmp_path / "unfinished").exists()
    assert not unfinished(tmp_path).resumed


def test_owners_that_come_back_under_other_ids_are_not_counted_twice(tmp_path: Path) -> None:
    """Two owners answer, and after a kill they answer under the ids of a new SuperLink: a plan that
    asks for three has no result."""
    plan = replace(training_plan(), minimum_owners=3)
    owners = [learner(plan, tmp_path / str(seed), seed=seed) for seed in range(2)]

    def ask(ids: bytes, *, stop: int = -1) -> Callable[[bytes], Iterable[Sent]]:
        def answers(query: bytes) -> Iterable[Sent]:
            if round_of(query) == stop:
                raise Interrupted
            for sent in asking(signed(plan), owners)(query):
                yield Sent(ids + sent.sender, sent.answer)

        return answers

    with pytest.raises(Interrupted):
        run_training(plan, ask(b"old", stop=2), keep=unfinished(tmp_path).begin(plan).before)
    again = unfinished(tmp_path, run=2).begin(plan)
    with pytest.raises(TooFewOwners, match="answers of 2 owners were counted"):
        run_training(plan, ask(b"new"), keep=again.before)


def test_rounds_of_another_query_are_not_taken(tmp_path: Path) -> None:
    """A round that was counted for other weights, or that is damaged, is refused, and nobody is
    asked; so another plan never gets the rounds of this one."""
    plan = training_plan()
    owners = [learner(plan, tmp_path / str(seed), seed=seed) for seed in range(OWNERS)]
    kept = unfinished(tmp_path).begin(plan)
    run_training(plan, asking(signed(plan), owners), keep=kept.before)
    first, second, *_ = sorted((tmp_path / "unfinished").glob("*/0*"))
    whole = first.read_bytes()
    for content, words in (
        (second.read_bytes(), "is of another query"),
        (whole[:-3], "cannot be read"),
        (whole.partition(b"\n")[0] + b"\n", "cannot be read"),
        (whole[1:], "cannot be read"),
    ):
        first.write_bytes(content)
        with pytest.raises(BadInput, match=words):
            run_training(plan, asking(signed(plan), []), keep=kept.before)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 3.0}, "of a run with other settings: epsilon; accepted are the settings"),
        ({"rounds": 5, "new": 1}, "other settings: new, rounds"),
        ({"later": DAYS}, "whose plans have expired"),
    ],
)
def test_another_run_does_not_go_on_from_here(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """Settings that make other plans, and plans that owners would not answer any more."""
    one = unfinished(tmp_path)
    one.begin(training_plan())
    assert unfinished(tmp_path, listed=True, timeout=3.0).resumed
    with pytest.raises(BadInput, match=words):
        unfinished(tmp_path, **changes)


def test_one_process_at_a_time_uses_a_folder(tmp_path: Path) -> None:
    """Of two runs at once, each would keep rounds that the other does not know. Runs that do not
    train, and simulations, keep nothing."""
    config = {"campaigns": "training:federated-averaging", "key-file": "aggregator.key"}
    fresh = Beginning(1, OWNERS, NOW)
    for other in ({"campaigns": "bits:certified"}, {"key-file": ""}):
        with unfinished_run(tmp_path, config | other, fresh) as none:
            assert none is None
    with unfinished_run(tmp_path, config, fresh) as first:
        assert first is not None
        first.begin(training_plan())
        second = unfinished_run(tmp_path, config, fresh)
        with pytest.raises(BadInput, match="another run is using"):
            second.__enter__()
    (tmp_path / "unfinished" / "run.json").write_text(json.dumps({"run": 1}))
    for _ in range(2):
        last = unfinished_run(tmp_path, config, fresh)
        with pytest.raises(BadInput, match="cannot be read"):
            last.__enter__()


def test_a_run_that_goes_on_makes_the_same_plans() -> None:
    """With the id, the owners and the time that it began with; a new run has plans of its own."""
    config = run_defaults() | {"campaigns": "training:federated-averaging bits:certified"}
    begun = Beginning(7, OWNERS, NOW)
    plans = [Plans(config, **vars(one)) for one in (begun, begun, Beginning(8, OWNERS, NOW))]
    first, again, other = ([plan.to_bytes() for plan in one.drafts] for one in plans)
    assert first == again
    assert not set(first) & set(other)
