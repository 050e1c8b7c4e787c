"""Answer a query of a campaign: check it, draw the answer, record the spend, send the answer.

The plan and the query are opened and the policy is checked; labels or bits are randomised; the
ledger commits spend and answer together; then the answer is sent. Whatever goes wrong, the other
side gets a code and never a text, because exceptions may hold values of records.
"""

import hashlib
import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.chosen_records import ChosenRecords
from confide.client.ledger.charges import Cost, Question
from confide.client.ledger.ledger import Ledger
from confide.client.model_results import ModelResults
from confide.client.policy import Policy
from confide.client.records.models import Model
from confide.client.records.records import Records
from confide.protocol.errors import BadInput, Refused
from confide.protocol.exact.sampling import SEEDED, Entropy, randomness
from confide.protocol.methods.base import Batch
from confide.protocol.methods.training import TrainingTerms
from confide.protocol.plan import Plan, open_plan, query_digest, read_query, signer, split_name
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import Array
from confide.protocol.wire.encoding import ID_BYTES, VERSION, serialise
from confide.protocol.wire.packing import write_batch

log = logging.getLogger(__name__)


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
        device: str = "auto",
    ) -> None:
        """Open the owner's records for answering.

        `policy` is called for every answer, so that a change takes effect at once. `model` runs on
        records that have features, and its results are kept in the folder `cache`. Networks are
        trained on `device`.
        """
        ledger.bind(secret)
        self._records, self._policy, self._ledger = records, policy, ledger
        self._secret, self._entropy, self._now = secret, entropy, now
        self._results, self._device = ModelResults(records, model, cache=cache), device
        self._own = [self._hash(name, b"record", 16) for name in records.names]
        known = ledger.persons() if records.persons is None else {}
        self._persons = (
            None
            if records.persons is None
            else [self._hash(name, b"person", 16) for name in records.persons]
        )
        # The participants: records, or the persons they belong to by this file or by an earlier
        # one.
        self._names = self._persons or [known.get(name, name) for name in self._own]
        self._placed: tuple[bytes, Array, NDArray[np.float64]] | None = None
        self._trainer: tuple[bytes, Any] | None = None

    def lacks_model(self, plan: Plan) -> bool:
        """Return whether the plan needs a model file here, and there is none."""
        return self._results.lacks_model(plan)

    def admit(self, *, new: bool) -> int:
        """Register records and their persons in the ledger; return the number of participants.

        Participants are records, or persons if the records belong to persons.
        """
        self._ledger.admit(self._own, self._persons, new=new)
        return len(set(self._names))

    def payers(self, digest: bytes) -> dict[int, tuple[bytes, ...]]:
        """The records that take part in what this digest names, one per person, and who pays."""
        taking = self._one_each(digest).tolist()
        return {i: tuple({self._own[i], self._names[i]}) for i in taking}

    def refusal(self, signed_plan: bytes, query: bytes) -> int | None:
        """Return the code that refuses an answer already drawn, or None if it may leave.

        The answer is the one to the query with this digest; it is judged by the present policy.
        """
        try:
            _, plan_digest, policy = self._open(signed_plan)
            self._check_leaving(plan_digest, query, policy)
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
        return plan, plan_digest, policy

    def _answer(self, signed_plan: bytes, query: bytes) -> bytes:
        plan, plan_digest, policy = self._open(signed_plan)
        asked, round_ = read_query(query, plan=plan, plan_digest=plan_digest)
        name = query_digest(query)
        remembered = self._ledger.remembered(plan_digest, name)
        if remembered is not None:
            self._check_leaving(plan_digest, name, policy)
            return remembered
        self._results.check(plan)
        self._check_origin(plan, policy)
        self._open_training(plan, plan_digest)
        taking, positions = self._taking_part(plan, plan_digest)
        inside = taking[(positions[taking] >= asked.start) & (positions[taking] < asked.stop)]
        if len(inside) < policy.minimum_group:
            raise Refused(wire.Code.GROUP_TOO_SMALL)
        question = Question(
            plan=plan_digest,
            campaign=plan.campaign,
            aggregator=signer(signed_plan),
            query=name,
            round_=round_,
            rounds=plan.terms.rounds,
        )
        asks: dict[str, Any] = {
            "cost": Cost(plan.epsilon, plan.privacy_delta),
            "limits": policy.limits,
            "payers": [tuple({self._own[i], self._names[i]}) for i in inside],
        }
        # The model runs only for an answer that can be given, and before any spend is charged. It
        # cannot fail, whatever the records hold.
        if plan.terms.uses_model and self._ledger.able(question, **asks):
            self._results.make(plan, vetted=plan.model in policy.vetted_models)

        def draw(chosen: list[int]) -> bytes:
            """Draw the answer of the chosen records; it must not leave before the ledger has it."""
            ids, places = self._named(plan_digest, inside[chosen], whole=asked.whole)
            columns = asked.answer(self._chosen(plan, plan_digest, places, positions=positions))
            batch = Batch(ids, columns, seeded=randomness(self._entropy) == SEEDED)
            packed = write_batch(batch, query=asked, plan=plan_digest, round_=round_)
            return serialise(wire.Answer(version=VERSION, code=wire.Code.OK, batch=packed))

        answer = self._ledger.answer(question, **asks, draw=draw, now=self._now())
        if answer is None:
            raise Refused(wire.Code.ALREADY_SPENT)
        # Drawing takes time, in which the owner may have changed the policy. The answer leaves only
        # if the policy still allows it.
        self._check_leaving(plan_digest, name, self._open(signed_plan)[2])
        return answer

    def _check_leaving(self, plan_digest: bytes, query: bytes, policy: Policy) -> None:
        """Refuse to release an answer that the present policy does not allow.

        Its records may have spent more, or be fewer, than the policy now allows.
        """
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
            units=lambda some: self._units(plan_digest, some, b"score"),
            trainer=None if self._trainer is None else self._trainer[1],
        )

    def _named(self, plan_digest: bytes, places: Array, *, whole: bool) -> tuple[Array, Array]:
        """Return the ids of the reports and the places in their order; a whole owner has one id.

        Reports are in the order of their ids: the order of the file would tell which reports of two
        campaigns belong to the same record.
        """
        names = [self._hash(plan_digest, b"owner", ID_BYTES)]
        if not whole:
            named = sorted(
                (self._hash(plan_digest + self._names[i], b"report", ID_BYTES), i)
                for i in places.tolist()
            )
            names, places = [name for name, _ in named], np.array([i for _, i in named])
        return np.frombuffer(b"".join(names), dtype=np.uint8).reshape(-1, ID_BYTES), places

    def _open_training(self, plan: Plan, plan_digest: bytes) -> None:
        """Make the network of a training ready before a record is read, or refuse it."""
        if plan.terms.features is None or (self._trainer and self._trainer[0] == plan_digest):
            return
        # Imported only by owners that train.
        from confide.client.training.local_round import Trainer

        try:
            self._trainer = plan_digest, Trainer(TrainingTerms.of(plan.terms), device=self._device)
        except BadInput as error:
            log.error("the network of this plan cannot be trained here: %s", error)
            raise Refused(wire.Code.CODE_NOT_ALLOWED) from None

    def _check_origin(self, plan: Plan, policy: Policy) -> None:
        """Refuse a model that the policy does not list, unless this owner helped to train it."""
        if not plan.terms.uses_model or plan.model in policy.models:
            return
        if all(row.plan != plan.training for row in self._ledger.campaigns()):
            raise Refused(wire.Code.MODEL_NOT_ALLOWED)

    def _taking_part(self, plan: Plan, plan_digest: bytes) -> tuple[Array, NDArray[np.float64]]:
        """Return the records that take part in this campaign, one per person, and all positions.

        Both follow from a keyed hash, so that only the owner's secret chooses records and assigns
        them to questions. A record's part in a split follows from its person's name in the same
        way, and not from its content.
        """
        if self._placed is None or self._placed[0] != plan_digest:
            everyone = np.arange(len(self._names))
            positions = self._units(plan_digest, everyone, b"position")
            if len(set(self._names)) < len(self._names):
                everyone = self._one_each(plan_digest)
            if plan.share:
                first, last = plan.share
                parts = self._units(split_name(plan, plan_digest), everyone, b"split")
                everyone = everyone[(parts >= first) & (parts < last)]
            self._placed = plan_digest, everyone, positions
        return self._placed[1:]

    def _one_each(self, plan_digest: bytes) -> Array:
        """Choose one record of every person."""
        drawn: dict[bytes, tuple[bytes, int]] = {}
        for i, (person, own) in enumerate(zip(self._names, self._own, strict=True)):
            ticket = self._hash(plan_digest + own, b"ticket", 8), i
            drawn[person] = min(drawn.get(person, ticket), ticket)
        return np.array(sorted(i for _, i in drawn.values()))

    def _units(self, plan_digest: bytes, chosen: Array, purpose: bytes) -> NDArray[np.float64]:
        """Return a uniform number in [0, 1) per record, which only the owner can predict.

        It is 53 bits of a keyed hash.
        """
        words = b"".join(
            self._hash(plan_digest + self._names[i], purpose, 8) for i in chosen.tolist()
        )
        return (np.frombuffer(words, dtype="<u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def _hash(self, data: bytes, purpose: bytes, size: int) -> bytes:
        return hashlib.blake2b(data, key=self._secret, person=purpose, digest_size=size).digest()
