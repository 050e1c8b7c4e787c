"""The path of a report: plan and query opened, policy asked, label or bit randomised, spend and answer committed, sent.

Whatever goes wrong, the other side gets a code and never a text: exceptions may hold values of records.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client.learning import learn
from client.ledger import Ledger
from client.policy import Policy
from client.records import Records
from protocol import wire_pb2 as wire
from protocol.campaign import VERSION, Plan, open_plan
from protocol.errors import Refused
from protocol.gaussian import discrete_gaussian
from protocol.grid import bin_indices, uniform_grid
from protocol.messages import ID_BYTES, Batch, OwnerAnswer, query_digest, read_query, write_batch, write_owner_answer
from protocol.queries import BitQuery, CentralQuery, HistogramQuery, LabelQuery, OwnerQuery, Query, TrainingQuery
from protocol.sampling import SEEDED, Entropy, randomness
from protocol.scores import RANDOMIZED, SCORES, true_scores

log = logging.getLogger(__name__)


class Respondent:
    """A data owner's records behind its policy and ledger; `answer` is all that a network adapter calls."""

    def __init__(
        self, *, records: Records, policy: Policy, ledger: Ledger, secret: bytes, entropy: Entropy, now: Callable[[], datetime]
    ) -> None:  # fmt: skip
        self._records, self._policy, self._ledger = records, policy, ledger
        self._secret, self._entropy, self._now = secret, entropy, now
        self._names = [self._hash(name, b"record", 16) for name in records.names]
        self._placed: tuple[bytes, NDArray[np.float64]] | None = None

    def answer(self, signed_plan: bytes, query: bytes) -> bytes:
        """The serialised Answer to a query of a signed plan. Asked again, the same bytes."""
        try:
            return self._answer(signed_plan, query)
        except Refused as refused:
            return wire.Answer(version=VERSION, code=wire.Code.Name(refused.code)).SerializeToString()
        except Exception:
            log.exception("a query could not be answered")
            return wire.Answer(version=VERSION, code=wire.Code.INTERNAL).SerializeToString()

    def _answer(self, signed_plan: bytes, query: bytes) -> bytes:
        plan, plan_digest = open_plan(signed_plan, trusted=self._policy.aggregators, now=self._now())
        asked, round_ = read_query(query, plan=plan, plan_digest=plan_digest)
        name = query_digest(query)
        remembered = self._ledger.remembered(plan_digest, name)
        if remembered is not None:
            return remembered
        self._policy.check(plan)
        self._check_records(plan)
        positions = self._positions(plan_digest)
        inside = np.arange(len(positions))
        if not isinstance(asked, OwnerQuery):
            inside = np.flatnonzero((positions >= asked.start) & (positions < asked.stop))
        # Training hides how many records there are, so it cannot be refused for their number.
        fewest = 1 if plan.training is not None else self._policy.minimum_group
        if len(inside) < fewest:
            raise Refused(wire.Code.GROUP_TOO_SMALL)
        answer = self._ledger.answer(
            plan=plan_digest, query=name, round_=round_, campaign=plan.campaign, epsilon=plan.epsilon,
            delta=plan.privacy_delta, limit=self._policy.epsilon_per_record, delta_limit=self._policy.delta_per_record,
            records=[self._names[i] for i in inside], fewest=fewest, now=self._now(),
            rounds=plan.rounds if isinstance(asked, OwnerQuery) else 0,
            draw=lambda places: self._draw(plan, plan_digest, asked, name, round_, inside[places], positions),
        )  # fmt: skip
        if answer is None:
            raise Refused(wire.Code.ALREADY_SPENT)
        return answer

    def _draw(
        self, plan: Plan, plan_digest: bytes, asked: Query, name: bytes, round_: int, chosen: NDArray[Any],
        positions: NDArray[np.float64],
    ) -> bytes:  # fmt: skip
        """The chosen records' answer, drawn now. It must not leave before the ledger holds it."""
        if isinstance(asked, OwnerQuery):
            if isinstance(asked, TrainingQuery):
                values = self._learn(plan, asked, chosen)
            else:
                values = self._count(plan, plan_digest, asked, chosen)
            owner = self._hash(plan_digest, b"owner", ID_BYTES)
            answer = OwnerAnswer(owner, values, seeded=randomness(self._entropy) == SEEDED)
            packed = write_owner_answer(answer, plan=plan_digest, round_=round_)
        else:
            batch = self._randomize(plan, plan_digest, asked, chosen, positions)
            packed = write_batch(batch, channel=asked.channel, plan=plan_digest, round_=round_)
        return wire.Answer(version=VERSION, code=wire.Code.OK, batch=packed).SerializeToString(deterministic=True)

    def _check_records(self, plan: Plan) -> None:
        """Records must be scored by the model the plan names, over as many labels; to train, they must have features."""
        records = self._records
        if plan.training is not None:
            if records.features is None or records.features.shape != (len(records), plan.training.layers[0]):
                raise Refused(wire.Code.MODEL_NOT_ALLOWED)
            if plan.training.epsilon(plan.privacy_delta) > plan.epsilon:
                raise Refused(wire.Code.EPSILON_PER_CAMPAIGN)
        elif records.model not in (None, plan.model) or records.probs is None or records.probs.shape[1] != plan.labels:
            raise Refused(wire.Code.MODEL_NOT_ALLOWED)

    def _count(self, plan: Plan, plan_digest: bytes, asked: CentralQuery, chosen: NDArray[Any]) -> NDArray[Any]:
        """How many of the chosen records fall into each bin; or at or below a threshold, with this owner's noise."""
        scores = self._scores(plan, plan_digest, chosen)
        if isinstance(asked, HistogramQuery):
            return np.bincount(bin_indices(scores, uniform_grid(asked.bins)), minlength=asked.bins)
        noise = discrete_gaussian(Fraction(asked.variance), 1, self._entropy)[0]
        return np.array([len(chosen), np.count_nonzero(scores <= asked.threshold) + noise])

    def _learn(self, plan: Plan, asked: TrainingQuery, chosen: NDArray[Any]) -> NDArray[Any]:
        """This owner's steps of the round, with fresh chance."""
        assert plan.training is not None
        assert self._records.features is not None
        features, labels = self._records.features[chosen], self._records.labels[chosen]
        return learn(plan.training, asked.weights, features, labels, entropy=self._entropy)

    def _scores(self, plan: Plan, plan_digest: bytes, chosen: NDArray[Any]) -> NDArray[Any]:
        """The scores of the true labels, a function of the record, the plan and the owner's secret."""
        u = self._units(plan_digest, chosen, b"score") if plan.score in RANDOMIZED else None
        return true_scores(SCORES[plan.score], self._records.scored[chosen], self._records.labels[chosen], u=u)

    def _randomize(
        self, plan: Plan, plan_digest: bytes, asked: BitQuery | LabelQuery, chosen: NDArray[Any], positions: NDArray[Any]
    ) -> Batch:
        # In the order of their ids: the order of the file would tell which reports of two campaigns are the same record's.
        named = sorted((self._hash(plan_digest + self._names[i], b"report", ID_BYTES), i) for i in chosen.tolist())
        ids = np.frombuffer(b"".join(name for name, _ in named), dtype=np.uint8).reshape(-1, ID_BYTES)
        chosen = np.array([i for _, i in named])
        probs, labels = self._records.scored[chosen], self._records.labels[chosen]
        seeded = randomness(self._entropy) == SEEDED
        if isinstance(asked, BitQuery):
            scores = self._scores(plan, plan_digest, chosen)
            parts = asked.part(positions[chosen])
            bits = scores <= np.asarray(asked.thresholds, dtype=np.float64)[parts]
            return Batch(ids, asked.channel.randomize(bits, self._entropy), parts=parts, seeded=seeded)
        return Batch(ids, asked.channel.randomize(labels, self._entropy), probabilities=probs, seeded=seeded)

    def _positions(self, plan_digest: bytes) -> NDArray[np.float64]:
        """Where each record stands in this campaign: a keyed hash, so nobody but the owner assigns records to questions."""
        if self._placed is None or self._placed[0] != plan_digest:
            self._placed = plan_digest, self._units(plan_digest, range(len(self._names)), b"position")
        return self._placed[1]

    def _units(self, plan_digest: bytes, chosen: Iterable[int], purpose: bytes) -> NDArray[np.float64]:
        """Uniform numbers in [0, 1), one a record, that only the owner can foretell: 53 bits of a keyed hash."""
        words = b"".join(self._hash(plan_digest + self._names[i], purpose, 8) for i in chosen)
        return (np.frombuffer(words, dtype="<u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def _hash(self, data: bytes, purpose: bytes, size: int) -> bytes:
        return hashlib.blake2b(data, key=self._secret, person=purpose, digest_size=size).digest()
