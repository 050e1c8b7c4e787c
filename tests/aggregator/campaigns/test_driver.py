from collections.abc import Generator

import pytest

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import Running, run_campaign, run_procedure
from confide.protocol.errors import BadInput
from tests.support.cards.shuffled_plans import SHUFFLED


def adding(rounds: int) -> Generator[str, int, int]:
    """A procedure that asks so many times and returns the sum of what it is told."""
    total = 0
    for number in range(rounds):
        total += yield f"query {number}"
    return total


def test_a_procedure_is_told_the_tally_of_each_query_in_order() -> None:
    """Rounds count from 0; a procedure that asks nothing is told nothing."""
    asked: list[tuple[str, int]] = []

    def tallies(query: str, round_: int) -> int:
        asked.append((query, round_))
        return 10**round_

    assert run_procedure(adding(3), tallies) == 111
    assert asked == [("query 0", 0), ("query 1", 1), ("query 2", 2)]
    assert run_procedure(adding(0), tallies) == 0


def test_a_source_that_runs_dry_is_not_the_end_of_the_procedure() -> None:
    """A StopIteration of the source is raised; it is not taken for a certificate of None."""
    with pytest.raises(StopIteration):
        run_procedure(adding(1), lambda *_: next(iter(())))


def test_a_procedure_goes_on_where_a_tally_was_missing() -> None:
    """It is asked for the same tally again, and its earlier rounds are not."""
    asked = list[int]()

    def tallies(query: str, round_: int) -> int:
        asked.append(round_)
        if asked.count(2) == 1 and round_ == 2:
            raise LookupError
        return 10**round_

    running = Running(adding(3))
    with pytest.raises(LookupError):
        running.proceed(tallies)
    assert running.proceed(tallies) == 111
    assert asked == [0, 1, 2, 2]


def test_owners_who_are_asked_directly_get_no_shuffled_plan() -> None:
    """Over Flower, or in process, nobody mixes reports: such a plan ends before it is sent."""

    def ask(query: bytes) -> list[Sent]:
        pytest.fail("an owner is asked")

    with pytest.raises(BadInput, match=r"names a shuffler.*`confide-aggregator serve`"):
        run_campaign(SHUFFLED, ask)
