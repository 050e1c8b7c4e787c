"""Running a campaign: a procedure asks, answers come in, and what arrived is what counts."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeVar

from confide.aggregator.campaigns.admission import Admission, Sent
from confide.aggregator.procedures.averaging import Learned
from confide.aggregator.procedures.central import Draw, draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.protocol.certificate import NOT_STATED, Certificate
from confide.protocol.errors import ConfideError
from confide.protocol.exact.sampling import OPERATING_SYSTEM, SEEDED
from confide.protocol.methods.base import Query, Tally
from confide.protocol.plan import Plan, digest, write_query

AnyQuery = TypeVar("AnyQuery")
AnyTally = TypeVar("AnyTally")
AnyResult = TypeVar("AnyResult")
# Sends a query to every owner and yields the answers that come back in time.
Ask = Callable[[bytes], Iterable[Sent]]


def run_procedure(
    procedure: Generator[AnyQuery, AnyTally, AnyResult],
    tallies: Callable[[AnyQuery, int], AnyTally],
) -> AnyResult:
    """Give a procedure the tally of every query it asks, and return what it returns.

    Simulations, Flower and the durable server all run procedures by this function; they differ in
    where tallies come from.
    """
    try:
        query = next(procedure)
        for round_ in count():
            query = procedure.send(tallies(query, round_))
    except StopIteration as finished:
        result: AnyResult = finished.value
        return result
    raise AssertionError("rounds never end by themselves")


class Evidence:
    """A source of tallies that notes what a certificate rests on.

    `crowds` are the reports that answered each threshold together, and `sizes` the records of every
    owner that answers as a whole, as the first round has them: the calibration set, which is
    complete before anything is released.
    """

    def __init__(self, plan: Plan, tallies: Callable[[Query, int], Tally]) -> None:
        self._plan, self._tallies = plan, tallies
        self.crowds: list[int] = []
        self.sizes: list[int] = []

    def __call__(self, query: Query, round_: int) -> Tally:
        tally = self._tallies(query, round_)
        self.crowds += tally.crowds()
        if not self.sizes and tally.owner_sizes():
            self.sizes = tally.owner_sizes()
            # Checked here, so that nothing is released of too few.
            check_owners(self._plan, self.sizes)
        return tally


class TooFew(ConfideError):
    """A campaign ended with less than its plan asks for, and has no certificate."""


class TooFewReports(TooFew):
    """Fewer reports."""


class TooFewOwners(TooFew):
    """Answers of fewer owners."""


@dataclass(frozen=True)
class Outcome:
    """A certificate, stamped with the randomness its reports say they come from, and how answers
    were received, by code.

    `crowd` is the fewest reports that answered one threshold of one round together: what a shuffler
    could hide a bit among. `contributors` is how many owners were counted, and `largest` the most
    reports, or records, of one of them.
    """

    certificate: Certificate
    received: dict[str, int]
    crowd: int | None
    contributors: int
    largest: int


def run_campaign(plan: Plan, ask: Ask, *, draw: Draw = draw_afresh) -> Outcome:
    """Run the plan's procedure over owners that are asked now."""
    intake = Admission(plan)
    evidence = Evidence(plan, asked_now(plan, ask, intake))
    certificate = run_procedure(plan_procedure(plan, draw), evidence)
    return conclude(
        plan,
        certificate,
        received=dict(intake.codes),
        seeded=intake.seeded,
        crowds=evidence.crowds,
        sizes=evidence.sizes or list(intake.counted.values()),
    )


def asked_now(plan: Plan, ask: Ask, intake: Admission) -> Callable[[Query, int], Tally]:
    """A source that asks owners and admits what comes back."""
    name = digest(plan.to_bytes())

    def tally(query: Query, round_: int) -> Tally:
        intake.open(query, round_)
        for answer in ask(write_query(query, plan=name, round_=round_)):
            intake.admit(answer)
        return intake.tally()

    return tally


def conclude(
    plan: Plan,
    certificate: Certificate,
    *,
    received: dict[str, int],
    seeded: bool,
    crowds: Iterable[int],
    sizes: Sequence[int],
) -> Outcome:
    """The outcome of a campaign whose procedure has ended, if enough reports of enough owners
    arrived; `sizes` are the reports, or the records, that were counted of each."""
    if certificate.n < plan.minimum_reports:
        raise TooFewReports(
            f"{certificate.n} reports arrived, the plan asks for at least {plan.minimum_reports}; "
            f"answers received: {_summary(received)}"
        )
    check_owners(plan, sizes)
    if certificate.randomness == NOT_STATED:
        certificate = replace(certificate, randomness=SEEDED if seeded else OPERATING_SYSTEM)
    contributors = sum(size > 0 for size in sizes)
    return Outcome(
        certificate, received, min(crowds, default=None), contributors, max(sizes, default=0)
    )


def check_owners(plan: Plan, sizes: Iterable[int]) -> None:
    """Refuse to go on with fewer contributors than the plan asks for: who declined, or had nothing
    to say, is none."""
    contributors = sum(size > 0 for size in sizes)
    if contributors < plan.minimum_owners:
        raise TooFewOwners(
            f"answers of {contributors} owners were counted, the plan asks for at least "
            f"{plan.minimum_owners}"
        )


def run_training(plan: Plan, ask: Ask) -> tuple[Learned, dict[str, int]]:
    """Run a plan of federated training; returns the common weights and how answers were received,
    by code."""
    intake = Admission(plan)
    learned: Learned = run_procedure(
        plan_procedure(plan, draw_afresh), asked_now(plan, ask, intake)
    )
    if not any(learned.owners):
        raise TooFewReports(
            f"no owner took part in the training; answers received: {_summary(intake.codes)}"
        )
    check_owners(plan, intake.counted.values())
    return learned, dict(intake.codes)


def _summary(received: Mapping[str, int]) -> str:
    return ", ".join(f"{code} {count}" for code, count in sorted(received.items())) or "nothing"
