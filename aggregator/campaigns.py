"""Running a campaign: a procedure asks, answers come in, and what arrived is what counts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from aggregator.central import Draw, draw_afresh
from aggregator.intake import Intake
from aggregator.procedures import plan_procedure
from protocol.campaign import Plan, digest
from protocol.certificate import NOT_STATED, Certificate
from protocol.errors import ConfideError
from protocol.messages import write_query
from protocol.queries import BitTally
from protocol.sampling import OPERATING_SYSTEM, SEEDED
from protocol.scores import SCORES

Ask = Callable[[bytes], Iterable[bytes]]


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
    name = digest(plan.to_bytes())
    procedure: Any = plan_procedure(plan, draw)
    intake = Intake(plan=name, score=SCORES[plan.score])
    round_, tally, crowd = 0, None, None
    while True:
        try:
            query = procedure.send(tally)
        except StopIteration as finished:
            certificate: Certificate = finished.value
            break
        intake.open(query, round_)
        for answer in ask(write_query(query, plan=name, round_=round_)):
            intake.admit(answer)
        round_, tally = round_ + 1, intake.tally()
        if isinstance(tally, BitTally):
            crowd = min((count for count in (crowd, *tally.answers) if count), default=None)
    if certificate.n < plan.minimum_reports:
        received = ", ".join(f"{code} {count}" for code, count in sorted(intake.codes.items())) or "nothing"
        raise TooFewReports(
            f"{certificate.n} reports arrived, the plan asks for at least {plan.minimum_reports}; answers received: {received}"
        )
    if certificate.randomness == NOT_STATED:
        certificate = replace(certificate, randomness=SEEDED if intake.seeded else OPERATING_SYSTEM)
    return Outcome(certificate, dict(intake.codes), crowd)
