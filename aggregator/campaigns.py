"""Running a campaign: a procedure asks, answers come in, and what arrived is what counts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aggregator.central import Draw, draw_afresh
from aggregator.intake import Intake, Sent
from aggregator.procedures import plan_procedure
from aggregator.training import Learned, federated_averaging
from protocol.campaign import Plan, digest
from protocol.certificate import NOT_STATED, Certificate
from protocol.errors import ConfideError
from protocol.messages import write_query
from protocol.queries import BitTally, Tally
from protocol.sampling import OPERATING_SYSTEM, SEEDED
from protocol.scores import SCORES

Ask = Callable[[bytes], Iterable[Sent]]


class TooFewReports(ConfideError):
    """A campaign ended with fewer reports than its plan asks for."""


@dataclass(frozen=True)
class Outcome:
    """A certificate, stamped with the randomness its reports say they come from, and how answers were received, by code.

    `crowd` is the fewest reports that answered one threshold of one round together: what a shuffler could hide a bit among.
    """

    certificate: Certificate
    received: dict[str, int]
    crowd: int | None


def run_campaign(plan: Plan, ask: Ask, *, draw: Draw = draw_afresh) -> Outcome:
    """Drive the plan's procedure; `ask` sends one query to every owner and yields the answers that come back in time."""
    found: list[int] = []
    certificate, intake = _conduct(plan, plan_procedure(plan, draw), ask, lambda tally: found.extend(crowds(tally)))
    return conclude(plan, certificate, received=dict(intake.codes), seeded=intake.seeded, crowds=found)


def conclude(plan: Plan, certificate: Certificate, *, received: dict[str, int], seeded: bool, crowds: Iterable[int]) -> Outcome:
    """The outcome of a campaign whose procedure has ended, if enough reports arrived."""
    if certificate.n < plan.minimum_reports:
        raise TooFewReports(
            f"{certificate.n} reports arrived, the plan asks for at least {plan.minimum_reports}; answers received: "
            f"{_summary(received)}"
        )
    if certificate.randomness == NOT_STATED:
        certificate = replace(certificate, randomness=SEEDED if seeded else OPERATING_SYSTEM)
    return Outcome(certificate, received, min(crowds, default=None))


def crowds(tally: Tally) -> list[int]:
    """How many reports answered each threshold, of those that got any."""
    return [count for count in tally.answers if count] if isinstance(tally, BitTally) else []


def run_training(plan: Plan, ask: Ask) -> tuple[Learned, dict[str, int]]:
    """Drive a plan of federated training; returns the common weights and how answers were received, by code."""
    assert plan.training is not None
    learned, intake = _conduct(plan, federated_averaging(plan.training), ask, lambda _: None)
    if not any(learned.owners):
        raise TooFewReports(f"no owner took part in the training; answers received: {_summary(intake.codes)}")
    return learned, dict(intake.codes)


def _conduct(plan: Plan, procedure: Any, ask: Ask, watch: Callable[[Tally], None]) -> tuple[Any, Intake]:
    """Send a procedure's queries and give it the tallies, until it returns."""
    name = digest(plan.to_bytes())
    intake = Intake(plan=name, score=SCORES[plan.score])
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
