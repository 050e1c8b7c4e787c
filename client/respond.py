"""The path of a report: plan and query opened, policy asked, label or bit randomised, spend and
answer committed, sent.

Whatever goes wrong, the other side gets a code and never a text: exceptions may hold values of
records.
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
from confide.client.policy import Policy
from confide.client.records.models import Model
from confide.client.records.records import Records
from confide.client.records.score_cache import probabilities
from confide.protocol.errors import Refused
from confide.protocol.exact.lattice import MOST_BATCH
from confide.protocol.exact.sampling import SEEDED, Entropy, randomness
from confide.protocol.methods.base import Batch
from confide.protocol.plan import Plan, open_plan, query_digest, read_query, signer
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import Array
from confide.protocol.wire.encoding import ID_BYTES, VERSION, serialise
from confide.protocol.wire.packing import write_batch

log = logging.getLogger(__name__)


class Respondent:
    """A data owner's records behind its policy and ledger; `answer` is all that a network adapter
    calls."""

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
    ) -> None:
        """`policy` is asked anew for every answer, so that a change holds at once; `model` scores
        records that have features, and its results are kept in the folder `cache`."""
        ledger.bind(secret)
        self._records, self._policy, self._ledger = records, policy, ledger
        self._secret, self._entropy, self._now = secret, entropy, now
        self._model, self._cache = model, cache
        self._own = [self._hash(name, b"record", 16) for name in records.names]
        known = ledger.persons() if records.persons is None else {}
        self._persons = (
            None
            if records.persons is None
            else [self._hash(name, b"person", 16) for name in records.persons]
        )
        # Who takes part: a record, or the person whose it is by this file or by an earlier one.
        self._names = self._persons or [known.get(name, name) for name in self._own]
        self._placed: tuple[bytes, Array, NDArray[np.float64]] | None = None
        self._scored: tuple[tuple[int, bool], Array] | None = None

    @property
    def scored(self) -> bool:
        """Whether the records came with probabilities, so that no model is needed."""
        return self._records.probs is not None

    def admit(self, *, new: bool) -> int:
        """Tell the ledger of these records and whose they are; returns how many records, or
        persons, take part."""
        self._ledger.admit(self._own, self._persons, new=new)
        return len(set(self._names))

    def refusal(self, signed_plan: bytes, query: bytes) -> int | None:
        """The code with which an answer that was drawn, to the query of this digest, is refused as
        things stand now; None when it may leave."""
        try:
            _, plan_digest, policy = self._open(signed_plan)
            self._check_leaving(plan_digest, query, policy)
        except Refused as refused:
            return refused.code
        return None

    def answer(self, signed_plan: bytes, query: bytes) -> bytes:
        """The serialised Answer to a query of a signed plan. Asked again, the same bytes."""
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
        """A plan that may be answered now, with its digest and the policy that allows it."""
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
        self._check_records(plan)
        taking, positions = self._taking_part(plan_digest)
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
        # Run for an answer that can be given, and before anything is charged: whatever records
        # hold, it cannot fail.
        if plan.terms.features is None and self._ledger.able(question, **asks):
            self._score(plan, vetted=plan.model in policy.vetted_models)

        def draw(chosen: list[int]) -> bytes:
            """The chosen records' answer, drawn now; it must not leave before the ledger has it."""
            ids, places = self._named(plan_digest, inside[chosen], whole=asked.whole)
            columns = asked.answer(self._chosen(plan, plan_digest, places, positions))
            batch = Batch(ids, columns, seeded=randomness(self._entropy) == SEEDED)
            packed = write_batch(batch, query=asked, plan=plan_digest, round_=round_)
            return serialise(wire.Answer(version=VERSION, code=wire.Code.OK, batch=packed))

        answer = self._ledger.answer(
            question,
            **asks,
            draw=draw,
            now=self._now(),
        )
        if answer is None:
            raise Refused(wire.Code.ALREADY_SPENT)
        # Drawing takes time, in which the owner may have changed the policy: then the answer stays
        # here.
        self._check_leaving(plan_digest, name, self._open(signed_plan)[2])
        return answer

    def _check_leaving(self, plan_digest: bytes, query: bytes, policy: Policy) -> None:
        """Refuse to let an answer go whose records have spent more, or are fewer, than the policy
        allows now."""
        if not self._ledger.may_leave(plan_digest, query, policy.limits):
            raise Refused(wire.Code.EPSILON_PER_RECORD)

    def _chosen(
        self, plan: Plan, plan_digest: bytes, places: Array, positions: NDArray[np.float64]
    ) -> ChosenRecords:
        return ChosenRecords(
            self._records,
            None if self._scored is None else self._scored[1],
            plan,
            places,
            positions[places],
            self._entropy,
            units=lambda some: self._units(plan_digest, some, b"score"),
        )

    def _named(self, plan_digest: bytes, places: Array, *, whole: bool) -> tuple[Array, Array]:
        """The ids of the reports, and the places in their order; of an owner as a whole, its own.

        Reports stand in the order of their ids: the order of the file would tell which reports of
        two campaigns are the same record's.
        """
        names = [self._hash(plan_digest, b"owner", ID_BYTES)]
        if not whole:
            named = sorted(
                (self._hash(plan_digest + self._names[i], b"report", ID_BYTES), i)
                for i in places.tolist()
            )
            names, places = [name for name, _ in named], np.array([i for _, i in named])
        return np.frombuffer(b"".join(names), dtype=np.uint8).reshape(-1, ID_BYTES), places

    def _check_records(self, plan: Plan) -> None:
        """Records must be scored by the model the plan names, over as many labels; to train, they
        must have features."""
        records, width = self._records, plan.terms.features
        if width is not None:
            if records.features is None or records.features.shape != (len(records), width):
                raise Refused(wire.Code.MODEL_NOT_ALLOWED)
            if len(records) > MOST_BATCH:
                raise Refused(wire.Code.TOO_LARGE)
        elif records.probs is not None:
            if records.model not in (None, plan.model) or records.probs.shape[1] != plan.labels:
                raise Refused(wire.Code.MODEL_NOT_ALLOWED)
        elif self._model is None or self._model.digest != plan.model:
            raise Refused(wire.Code.MODEL_NOT_ALLOWED)

    def _score(self, plan: Plan, *, vetted: bool) -> None:
        """Have every record scored by the plan's model, over the plan's labels. Whatever records
        hold, this does not fail."""
        if self._scored is None or self._scored[0] != (plan.labels, vetted):
            found = probabilities(
                self._records, self._model, labels=plan.labels, vetted=vetted, cache=self._cache
            )
            self._scored = (plan.labels, vetted), found

    def _taking_part(self, plan_digest: bytes) -> tuple[Array, NDArray[np.float64]]:
        """The records that take part in this campaign, one of every person, and where each record
        stands.

        Both follow from a keyed hash, so nobody but the owner chooses records or assigns them to
        questions.
        """
        if self._placed is None or self._placed[0] != plan_digest:
            everyone = np.arange(len(self._names))
            positions = self._units(plan_digest, everyone, b"position")
            if len(set(self._names)) < len(self._names):
                everyone = self._one_each(plan_digest)
            self._placed = plan_digest, everyone, positions
        return self._placed[1:]

    def _one_each(self, plan_digest: bytes) -> Array:
        """One record of every person."""
        drawn: dict[bytes, tuple[bytes, int]] = {}
        for i, (person, own) in enumerate(zip(self._names, self._own, strict=True)):
            ticket = self._hash(plan_digest + own, b"ticket", 8), i
            drawn[person] = min(drawn.get(person, ticket), ticket)
        return np.array(sorted(i for _, i in drawn.values()))

    def _units(self, plan_digest: bytes, chosen: Array, purpose: bytes) -> NDArray[np.float64]:
        """Uniform numbers in [0, 1), one a record, that only the owner can foretell: 53 bits of a
        keyed hash."""
        words = b"".join(
            self._hash(plan_digest + self._names[i], purpose, 8) for i in chosen.tolist()
        )
        return (np.frombuffer(words, dtype="<u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def _hash(self, data: bytes, purpose: bytes, size: int) -> bytes:
        return hashlib.blake2b(data, key=self._secret, person=purpose, digest_size=size).digest()
