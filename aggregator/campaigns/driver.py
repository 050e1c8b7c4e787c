"""Runs a campaign: a procedure asks queries, and only the answers that arrive count."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from confide.aggregator.campaigns.admission import Admission, RoundCounts, Sent
from confide.aggregator.campaigns.owner_record import OwnerRecord, Row
from confide.aggregator.procedures.averaging import Learned
from confide.aggregator.procedures.counts.central import Draw, draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.protocol.certificate import NOT_STATED, Certificate
from confide.protocol.errors import ConfideError
from confide.protocol.exact.sampling import OPERATING_SYSTEM, SEEDED
from confide.protocol.methods.base import Query, Tally
from confide.protocol.methods.training.mean_weights import TrainingTally
from confide.protocol.plan import Plan, digest, write_query
from confide.protocol.shuffling import Handover

AnyQuery = TypeVar("AnyQuery")
AnyTally = TypeVar("AnyTally")
AnyResult = TypeVar("AnyResult")
# Sends a query to every owner and yields the answers that come back in time.
Ask = Callable[[bytes], Iterable[Sent]]
# Returns the tally of a query and its round.
Tallies = Callable[[Query, int], Tally]


def run_procedure(
    procedure: Generator[AnyQuery, AnyTally, AnyResult],
    tallies: Callable[[AnyQuery, int], AnyTally],
) -> AnyResult:
    """Give a procedure the tally of every query it asks, and return its result.

    Simulations, Flower and the durable server all run procedures like this; they differ in where
    tallies come from.
    """
    return Running(procedure).proceed(tallies)


class Running(Generic[AnyQuery, AnyTally, AnyResult]):
    """A procedure that is under way; it can continue after a query that had no tally yet."""

    def __init__(self, procedure: Generator[AnyQuery, AnyTally, AnyResult]) -> None:
        self._procedure, self._round = procedure, 0
        # None starts a generator; the type of what is sent later does not allow it.
        self._tally: Any = None
        self._query: list[AnyQuery] = []

    def proceed(self, tallies: Callable[[AnyQuery, int], AnyTally]) -> AnyResult:
        """Go on to the result.

        If the source raises an exception, the next call asks it for the same tally again.
        """
        while True:
            if not self._query:
                # Nothing else is tried here: a StopIteration of the source is not the result.
                try:
                    self._query = [self._procedure.send(self._tally)]
                except StopIteration as finished:
                    result: AnyResult = finished.value
                    return result
            self._tally = tallies(self._query[0], self._round)
            self._query, self._round = [], self._round + 1


class RecordedTallies:
    """A source of tallies that records the numbers a certificate rests on.

    `crowds` are the numbers of reports of each round that a shuffler could hide. `sizes` are the
    numbers of records of every owner that answers as a whole, taken from the first round: they are
    the calibration set, which is complete before anything is released.
    """

    def __init__(self, plan: Plan, tallies: Tallies) -> None:
        self._plan, self._tallies = plan, tallies
        self.crowds: list[int] = []
        self.sizes: list[int] = []
        self.owners = OwnerRecord(plan)

    def __call__(self, query: Query, round_: int) -> Tally:
        tally = self._tallies(query, round_)
        self.crowds.append(tally.crowd())
        if self._plan.terms.calibrates_by_reports:
            self.owners.add(query, tally)
        if not self.sizes and tally.owner_sizes():
            self.sizes = tally.owner_sizes()
            # Checked here, so that nothing is released from too few owners.
            check_owners(self._plan, contributors(self.sizes))
        return tally


class TooFew(ConfideError):
    """A campaign ended with less than its plan asks for, and has no certificate."""


class TooFewReports(TooFew):
    """A campaign ended with fewer reports than its plan asks for."""


class TooFewOwners(TooFew):
    """A campaign ended with answers of fewer owners than its plan asks for."""


@dataclass(frozen=True)
class ShuffledRound:
    """A round as a shuffler handed it over, and how many of its reports opened and were counted."""

    handover: Handover
    signature: bytes
    opened: int


@dataclass(frozen=True)
class Outcome:
    """The result of a campaign: its certificate, and how many answers were received by code.

    The certificate states the randomness that its reports say they come from. `contributors` is how
    many owners were counted, and `largest` the most reports, or records, of one of them. In a
    shuffled campaign both are what the shuffler signed with the last of its `shuffled` rounds. Else
    `owners` describes each of the `senders`, in the order in which cards number them, `departure`
    says in words if some left, and `rounds` what each round received.
    """

    certificate: Certificate
    received: dict[str, int]
    contributors: int
    largest: int
    shuffled: tuple[ShuffledRound, ...] = ()
    owners: Sequence[Row] = ()
    senders: Sequence[bytes] = ()
    departure: str | None = None
    rounds: Sequence[RoundCounts] = ()


def run_campaign(
    plan: Plan, ask: Ask, *, draw: Draw = draw_afresh, model: bytes | None = None
) -> Outcome:
    """Run the plan's procedure, and ask the owners its queries now.

    `model` is the file that the aggregator scores with, if the plan says that it does.
    """
    admission = Admission(plan, model=model)
    recorded = RecordedTallies(plan, asked_now(plan, ask, admission))
    certificate = run_procedure(plan_procedure(plan, draw), recorded)
    return conclude(
        plan,
        certificate,
        received=dict(admission.codes),
        seeded=admission.seeded,
        sizes=recorded.sizes or list(admission.counted.values()),
        owners=recorded.owners,
        rounds=admission.rounds,
    )


def asked_now(plan: Plan, ask: Ask, admission: Admission) -> Tallies:
    """Make a source of tallies that asks owners and admits the answers they return."""
    name = digest(plan.to_bytes())

    def tally(query: Query, round_: int) -> Tally:
        admission.open(query, round_)
        for answer in ask(write_query(query, plan=name, round_=round_)):
            admission.admit(answer)
        return admission.tally()

    return tally


def conclude(
    plan: Plan,
    certificate: Certificate,
    *,
    received: dict[str, int],
    seeded: bool,
    sizes: Sequence[int],
    shuffled: Sequence[ShuffledRound] = (),
    owners: OwnerRecord | None = None,
    rounds: Sequence[RoundCounts] = (),
) -> Outcome:
    """Make the outcome of a campaign whose procedure has ended, or raise TooFew.

    `sizes` are the reports, or the records, that were counted of each owner, and `owners` has what
    each said; of `shuffled` rounds only the shuffler knows them. `rounds` are what each received.
    """
    record = OwnerRecord() if owners is None else owners
    if certificate.n < plan.minimum_reports:
        raise TooFewReports(
            f"{certificate.n} reports arrived, the plan asks for at least {plan.minimum_reports}; "
            f"answers received: {_summary(received)}"
        )
    counted, largest = contributors(sizes), max(sizes, default=0)
    if plan.shuffling is not None:
        last = shuffled[-1].handover if shuffled else None
        counted, largest = (0, 0) if last is None else (last.owners, last.largest)
    check_owners(plan, counted)
    if certificate.randomness == NOT_STATED:
        certificate = replace(certificate, randomness=SEEDED if seeded else OPERATING_SYSTEM)
    known = plan.terms.calibrates_by_reports and plan.shuffling is None
    return Outcome(
        certificate,
        received,
        contributors=counted,
        largest=largest,
        shuffled=tuple(shuffled),
        owners=record.rows(certificate) if known else (),
        senders=record.keys if known else (),
        departure=record.remark(certificate) if known else None,
        rounds=tuple(rounds) if known else (),
    )


def contributors(sizes: Iterable[int]) -> int:
    """Return how many owners contributed; those that declined or sent nothing do not count."""
    return sum(size > 0 for size in sizes)


def check_owners(plan: Plan, counted: int) -> None:
    """Raise TooFewOwners if fewer owners contributed than the plan asks for."""
    if counted < plan.minimum_owners:
        raise TooFewOwners(
            f"answers of {counted} owners were counted, the plan asks for at least "
            f"{plan.minimum_owners}"
        )


def run_training(
    plan: Plan,
    ask: Ask,
    tell: Callable[[int, TrainingTally], None] = lambda *_: None,
    *,
    keep: Callable[[Tallies, Admission], Tallies] | None = None,
) -> tuple[Learned, dict[str, int]]:
    """Run a plan of federated training; `tell` is called for every counted round.

    `keep` may take rounds from elsewhere (`confide.aggregator.campaigns.unfinished`); since then
    owners may have other ids, so that only those of one round are surely different ones. Returns
    the common weights, and how many answers were received by code.
    """
    admission = Admission(plan)
    counted = asked_now(plan, ask, admission)
    if keep is not None:
        counted = keep(counted, admission)

    def told(query: Query, round_: int) -> Any:
        tally: Any = counted(query, round_)
        tell(round_, tally)
        return tally

    learned: Learned = run_procedure(plan_procedure(plan, draw_afresh), told)
    check_learned(plan, learned, received=admission.codes, sizes=admission.counted.values())
    if keep is not None:
        check_owners(plan, max(learned.owners))
    return learned, dict(admission.codes)


def check_learned(
    plan: Plan, learned: Learned, *, received: Mapping[str, int], sizes: Iterable[int]
) -> None:
    """Raise TooFew if no owner took part in a training, or fewer than the plan asks for.

    `sizes` are the answers that were counted of each owner.
    """
    if not any(learned.owners):
        raise TooFewReports(
            f"no owner took part in the training; answers received: {_summary(received)}"
        )
    check_owners(plan, contributors(sizes))


def _summary(received: Mapping[str, int]) -> str:
    return ", ".join(f"{code} {count}" for code, count in sorted(received.items())) or "nothing"
