"""Running a campaign: a procedure asks, answers come in, and what arrived is what counts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from confide.aggregator.campaigns.admission import Intake, Sent
from confide.aggregator.procedures.averaging import Learned, federated_averaging
from confide.aggregator.procedures.central import Draw, draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.protocol.certificate import NOT_STATED, Certificate
from confide.protocol.errors import ConfideError
from confide.protocol.exact.sampling import OPERATING_SYSTEM, SEEDED
from confide.protocol.methods.queries import BitTally, CountTally, HistogramTally, Tally
from confide.protocol.plan import Plan, digest
from confide.protocol.wire.packing import write_query

Ask = Callable[[bytes], Iterable[Sent]]


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
    """Drive the plan's procedure; `ask` sends one query to every owner and yields the answers that
    come back in time."""
    found: list[int] = []
    sizes: list[int] = []

    def watch(tally: Tally) -> None:
        found.extend(crowds(tally))
        sizes.extend(() if sizes else owner_sizes(plan, tally))

    certificate, intake = _conduct(plan, plan_procedure(plan, draw), ask, watch)
    return conclude(
        plan,
        certificate,
        received=dict(intake.codes),
        seeded=intake.seeded,
        crowds=found,
        sizes=sizes or list(intake.counted.values()),
    )


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
            "answers received: "
            f"{_summary(received)}"
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


def owner_sizes(plan: Plan, tally: Tally) -> list[int]:
    """The records of every owner that answers as a whole, as the first round has them: the
    calibration set, which is complete before anything is released. Checked here, so that nothing is
    released of too few. Of reports, nothing."""
    if isinstance(tally, HistogramTally):
        sizes = list(tally.sizes)
    elif isinstance(tally, CountTally):
        sizes = [size for size, _ in tally.answers.values()]
    else:
        return []
    check_owners(plan, sizes)
    return sizes


def crowds(tally: Tally) -> list[int]:
    """How many reports answered each threshold, of those that got any."""
    return [count for count in tally.answers if count] if isinstance(tally, BitTally) else []


def run_training(plan: Plan, ask: Ask) -> tuple[Learned, dict[str, int]]:
    """Drive a plan of federated training; returns the common weights and how answers were received,
    by code."""
    assert plan.training is not None
    learned, intake = _conduct(plan, federated_averaging(plan.training), ask, lambda _: None)
    if not any(learned.owners):
        raise TooFewReports(
            f"no owner took part in the training; answers received: {_summary(intake.codes)}"
        )
    check_owners(plan, intake.counted.values())
    return learned, dict(intake.codes)


def _conduct(
    plan: Plan, procedure: Any, ask: Ask, watch: Callable[[Tally], None]
) -> tuple[Any, Intake]:
    """Send a procedure's queries and give it the tallies, until it returns."""
    name = digest(plan.to_bytes())
    intake = Intake(plan)
    round_, tally = 0, None
    while True:
        try:
            query = procedure.send(tally)
        except StopIteration as finished:
            return finished.value, intake
        intake.open(query, round_)
        for answer in ask(write_query(query, plan=name, round_=round_)):
            intake.admit(answer)
        round_, tally = round_ + 1, intake.tally()
        watch(tally)


def _summary(received: Mapping[str, int]) -> str:
    return ", ".join(f"{code} {count}" for code, count in sorted(received.items())) or "nothing"
