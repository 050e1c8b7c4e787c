"""Answer a query of a campaign: check it, draw the answer, record the spend, send the answer.

The plan and the query are opened and the policy is checked; labels or bits are randomised; the
ledger commits spend and answer together; then the answer is sent. Whatever goes wrong, the other
side gets a code and never a text, because exceptions may hold values of records.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.answering.chosen_records import ChosenRecords
from confide.client.answering.model_results import ModelResults
from confide.client.answering.participants import Participants
from confide.client.ledger.charges import Cost, LedgerQuery
from confide.client.ledger.ledger import Ledger
from confide.client.policy import Policy
from confide.client.records.groups import in_groups
from confide.client.records.records import Records
from confide.client.training.computing import USUAL, Computing
from confide.protocol.errors import BadInput, Refused
from confide.protocol.exact.sampling import SEEDED, Entropy, randomness
from confide.protocol.methods.base import Batch, Query
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.models.model_file import Model
from confide.protocol.plan import Plan, open_plan, query_digest, read_query, signer
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import Array
from confide.protocol.wire.encoding import ID_BYTES, VERSION, serialise
from confide.protocol.wire.packing import write_batch
from confide.protocol.wire.splitting import report_columns

log = logging.getLogger(__name__)

# The most bytes of an answer in reports. They are several times in memory while it is made, and
# SQLite takes no more than 1e9.
MOST_ANSWER = 1 << 29
# A query of at most so many bytes is read once for all owners of a process.
SHORT = 1 << 16
_read_short = lru_cache(maxsize=8)(read_query)


class Respondent:
    """A data owner's records behind its policy and ledger.

    A network adapter calls only `answer`.
    """

    def __init__(
        self,
        *,
        records: Records,
        policy: Callable[[], Policy],
        ledger: Ledger,
        secret: bytes,
        entropy: Entropy,
        now: Callable[[], datetime],
        model: Model | None = None,
        cache: Path | None = None,
        computing: Computing = USUAL,
        route: bytes = b"",
        receipts: bool = True,
    ) -> None:
        """Open the owner's records for answering.

        `policy` is called for every answer, so that a change takes effect at once. `model` runs on
        records that have features, and its results are kept in the folder `cache`. Networks are
        trained as `computing` says. `route` is the digest of the authority that the other side of
        the connection has shown a certificate of; empty if it has shown none. Without `receipts`,
        an answer to a training is not kept when the next round is asked.
        """
        ledger.bind(secret)
        self._records, self._policy, self._ledger = records, policy, ledger
        self._entropy, self._now = entropy, now
        self._results, self._computing = ModelResults(records, model, cache=cache), computing
        self._participants = Participants(records, ledger, secret)
        self._trainer: tuple[tuple[bytes, bool], Any] | None = None
        self._route, self._receipts = route, receipts

    def lacks_model(self, plan: Plan) -> bool:
        """Return whether the plan needs a model file here, and there is none."""
        return self._results.lacks_model(plan)

    def misfit(self, plan: Plan) -> str | None:
        """Say, to the owner alone, what records lack that the plan needs; None: nothing."""
        return self._results.misfit(plan)

    def score_with(self, model: Model) -> None:
        """Use this model, which came after the owner was opened."""
        self._results.use(model)

    def admit(self, *, new: bool) -> int:
        """Register records and their persons in the ledger; return the number of participants.

        Participants are records, or persons if the records belong to persons.
        """
        self._participants.admit(self._ledger, new=new)
        return len(self._participants)

    def payers(self, digest: bytes) -> dict[int, tuple[bytes, ...]]:
        """The records, one per person, that take part in this digest's campaign, and who pays."""
        taking = self._participants.one_each(digest)
        return dict(zip(taking.tolist(), self._participants.payers(taking), strict=True))

    def refusal(self, signed_plan: bytes, query: bytes) -> int | None:
        """Return the code that refuses an answer already drawn, or None if it may leave.

        The answer is the one to the query with this digest; it is judged by the present policy.
        """
        try:
            plan, plan_digest, policy = self._open(signed_plan)
            self._check_leaving(plan, plan_digest, query, policy=policy)
        except Refused as refused:
            return refused.code
        return None

    def answer(self, signed_plan: bytes, query: bytes) -> bytes:
        """Return the serialised Answer to a query of a signed plan.

        The same query gets the same bytes when asked again.
        """
        try:
            return self._answer(signed_plan, query)
        except Refused as refused:
            return wire.Answer(
                version=VERSION, code=wire.Code.Name(refused.code)
            ).SerializeToString()
        except Exception:
            log.exception("a query could not be answered")
            return wire.Answer(version=VERSION, code=wire.Code.INTERNAL).SerializeToString()

    def _open(self, signed_plan: bytes) -> tuple[Plan, bytes, Policy]:
        """Open a plan that may be answered now; return it with its digest and the policy."""
        policy = self._policy()
        plan, plan_digest = open_plan(signed_plan, trusted=policy.aggregators, now=self._now())
        policy.check(plan)
        if plan.shuffling is not None and plan.shuffling.authority != self._route:
            raise Refused(wire.Code.SHUFFLER_ONLY)
        return plan, plan_digest, policy

    def _answer(self, signed_plan: bytes, query: bytes) -> bytes:
        plan, plan_digest, policy = self._open(signed_plan)
        read = _read_short if len(query) <= SHORT else read_query
        asked, round_ = read(query, plan=plan, plan_digest=plan_digest)
        name = query_digest(query)
        # Before looking, so that whatever another process writes from here on is noticed below.
        version, remembered = self._ledger.version(), self._ledger.remembered(plan_digest, name)
        if remembered is not None:
            self._check_leaving(plan, plan_digest, name, policy=policy)
            return remembered
        self._check_model(plan, policy, aggregator=signer(signed_plan))
        inside, positions = self._concerned(plan, plan_digest, asked, policy=policy)
        charged = _ledger_query(
            plan, policy, name=plan_digest, query=name, round_=round_, signed=signed_plan
        )
        if not self._receipts:
            charged = replace(charged, later=charged.training is not None)
        asks: dict[str, Any] = {
            "cost": Cost(plan.epsilon, plan.privacy_delta),
            "limits": policy.limits,
            "payers": self._participants.payers(inside),
        }

        def prepare() -> None:
            """Run the model, only for an answer that can be given, and before any charge."""
            if plan.terms.uses_model:
                self._results.make(plan, vetted=charged.together)

        def draw(chosen: list[int]) -> bytes:
            """Draw the answer of the chosen records; it must not leave before the ledger has it."""
            ids, places = self._participants.report_ids(
                plan_digest, inside[chosen], whole=asked.whole
            )
            columns = asked.answer(self._chosen(plan, plan_digest, places, positions=positions))
            batch = Batch(ids, columns, seeded=randomness(self._entropy) == SEEDED)
            packed = write_batch(batch, query=asked, plan=plan_digest, round_=round_)
            return serialise(wire.Answer(version=VERSION, code=wire.Code.OK, batch=packed))

        answer = self._ledger.answer(charged, **asks, prepare=prepare, draw=draw, now=self._now())
        if answer is None:
            raise Refused(wire.Code.ALREADY_SPENT)
        # Drawing takes time, in which the owner may have changed the policy, and another process
        # the ledger. The answer leaves only if the policy still allows it.
        latest = self._open(signed_plan)[2]
        if latest != policy or self._ledger.version() != version:
            self._check_leaving(plan, plan_digest, name, policy=latest)
        return answer

    def _concerned(
        self, plan: Plan, plan_digest: bytes, asked: Query, *, policy: Policy
    ) -> tuple[Array, NDArray[np.float64]]:
        """The records that a query concerns, and the positions of all; refuse too few or many."""
        taking, positions = self._taking_part(plan, plan_digest, vetted=policy.vets(plan))
        inside = taking[(positions[taking] >= asked.start) & (positions[taking] < asked.stop)]
        if len(inside) < policy.minimum_group:
            raise Refused(wire.Code.GROUP_TOO_SMALL)
        if len(inside) * _report_bytes(plan) > MOST_ANSWER:
            raise Refused(wire.Code.TOO_LARGE)
        return inside, positions

    def _taking_part(
        self, plan: Plan, plan_digest: bytes, *, vetted: bool
    ) -> tuple[Array, NDArray[np.float64]]:
        """The records that may answer a plan, and the positions of all; refuse what cannot run."""
        trained = self._ledger.charged(plan.training) if plan.training else set()
        self._open_training(plan, (plan_digest, vetted))
        taking, positions = self._participants.taking_part(plan, plan_digest)
        if plan.terms.on_training_records:
            # Those that were charged for the training, and will be charged for this as well.
            return self._participants.only(taking, trained), positions
        # Shares keep them apart already, unless records were named otherwise during the training.
        taking = self._participants.without(taking, trained)
        return in_groups(self._records, plan, taking), positions

    def _check_leaving(
        self, plan: Plan, plan_digest: bytes, query: bytes, *, policy: Policy
    ) -> None:
        """Refuse to release an answer that the present policy does not allow.

        Its records may have spent more, or be fewer, than the policy now allows, or their model or
        network may have seen many of them at once and not be vetted any more.
        """
        if not policy.vets(plan) and self._ledger.together(plan_digest, query):
            code = plan.terms.code is not None
            raise Refused(wire.Code.CODE_NOT_ALLOWED if code else wire.Code.MODEL_NOT_ALLOWED)
        if not self._ledger.may_leave(plan_digest, query, policy.limits):
            raise Refused(wire.Code.EPSILON_PER_RECORD)

    def _chosen(
        self, plan: Plan, plan_digest: bytes, places: Array, *, positions: NDArray[np.float64]
    ) -> ChosenRecords:
        return ChosenRecords(
            self._records,
            self._results.made(plan),
            plan,
            places,
            positions[places],
            self._entropy,
            units=lambda some: self._participants.units(plan_digest, some, b"score"),
            trainer=None if self._trainer is None else self._trainer[1],
        )

    def _open_training(self, plan: Plan, key: tuple[bytes, bool]) -> None:
        """Make the network of a training ready before a record is read, or refuse it.

        The key is the plan's digest and whether the network is vetted.
        """
        if plan.terms.features is None or (self._trainer and self._trainer[0] == key):
            return
        # Imported only by owners that train.
        from confide.client.training.local_round import Trainer

        try:
            terms = TrainingTerms.of(plan.terms)
            self._trainer = key, Trainer(terms, computing=self._computing, vetted=key[1])
        except BadInput as error:
            log.error("the network of this plan cannot be trained here: %s", error)
            raise Refused(wire.Code.CODE_NOT_ALLOWED) from None

    def _check_model(self, plan: Plan, policy: Policy, *, aggregator: bytes) -> None:
        """Refuse records that do not fit the plan, and a model that the policy does not list.

        One that is not listed may be what the plan says: this owner helped to train it, in a
        training of the same aggregator, whose network the file is.
        """
        self._results.check(plan)
        if not plan.terms.uses_model or plan.model in policy.models:
            return
        training = self._ledger.training(plan.training, aggregator)
        if training is None or not self._results.come_of(Plan.from_bytes(training)):
            raise Refused(wire.Code.MODEL_NOT_ALLOWED)


def _report_bytes(plan: Plan) -> float:
    """Return the bytes of a report of one record; 0 where the owner answers as a whole."""
    bits = sum(report_columns(plan)[1].values())
    return ID_BYTES + bits / 8 if bits else 0.0


def _ledger_query(
    plan: Plan, policy: Policy, *, name: bytes, query: bytes, round_: int, signed: bytes
) -> LedgerQuery:
    """Return what the ledger is asked, by the digests of the plan and of the query."""
    return LedgerQuery(
        plan=name,
        campaign=plan.campaign,
        aggregator=signer(signed),
        query=query,
        round_=round_,
        rounds=plan.terms.rounds,
        training=None if plan.terms.features is None else plan.to_bytes(),
        together=policy.vets(plan),
    )
