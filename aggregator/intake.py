"""Where answers come in: the one place that admits or rejects them, and counts what happened.

A rejected answer is data, not an error: it is counted under its code and has no effect. A report id counts once in a campaign,
so an answer that arrives twice adds nothing.
"""

from collections import Counter

import numpy as np

from protocol import wire_pb2 as wire
from protocol.campaign import VERSION, parse
from protocol.errors import Refused
from protocol.messages import Batch, OwnerAnswer, read_batch, read_owner_answer
from protocol.queries import (
    BitQuery,
    BitTally,
    CountQuery,
    CountTally,
    HistogramQuery,
    HistogramTally,
    LabelTally,
    OwnerQuery,
    Query,
    Tally,
    TrainingQuery,
    TrainingTally,
)
from protocol.scores import Score, all_scores


class Intake:
    """The answers to the queries of one campaign."""

    def __init__(self, *, plan: bytes, score: Score) -> None:
        self._plan, self._score = plan, score
        self._seen: set[bytes] = set()
        self._batches: list[Batch] = []
        self._owners: dict[bytes, OwnerAnswer] = {}
        self._query: Query | None = None
        self._round = -1
        self.codes: Counter[str] = Counter()
        self.seeded = False

    def open(self, query: Query, round_: int) -> None:
        """Start taking answers to a query; answers to earlier ones are late from now on."""
        self._query, self._round, self._batches, self._owners = query, round_, [], {}

    def admit(self, answer: bytes) -> wire.Receipt:
        """Take an answer in, or say why not."""
        try:
            fresh, repeated = self._admit(answer)
        except Refused as refused:
            name = wire.Code.Name(refused.code)
            self.codes[name] += 1
            return wire.Receipt(version=VERSION, code=name)
        name = "OK" if fresh or not repeated else "DUPLICATE"
        self.codes[name] += 1
        return wire.Receipt(version=VERSION, code=name, accepted=fresh, duplicates=repeated)

    def _admit(self, answer: bytes) -> tuple[int, int]:
        message = parse(wire.Answer, answer)
        if message.code != wire.Code.OK:
            raise Refused(message.code)
        if self._query is None:
            raise Refused(wire.Code.WRONG_ROUND)
        if message.batch.plan == self._plan and message.batch.round < self._round:
            raise Refused(wire.Code.LATE)
        if isinstance(self._query, OwnerQuery):
            return self._admit_owner(message.batch, self._query)
        batch = read_batch(message.batch, query=self._query, plan=self._plan, round_=self._round)
        ids = [row.tobytes() for row in batch.ids]
        places = [place for place, name in enumerate(ids) if name not in self._seen]
        fresh = dict.fromkeys(ids[place] for place in places)
        if len(fresh) != len(places):
            raise Refused(wire.Code.MALFORMED)
        self._seen.update(fresh)
        self.seeded |= batch.seeded
        self._batches.append(
            Batch(
                batch.ids[places],
                batch.reports[places],
                parts=None if batch.parts is None else batch.parts[places],
                probabilities=None if batch.probabilities is None else batch.probabilities[places],
            )
        )
        return len(places), len(ids) - len(places)

    def _admit_owner(self, message: wire.ReportBatch, query: OwnerQuery) -> tuple[int, int]:
        """An owner counts once a round, whoever sends its answer again."""
        answer = read_owner_answer(message, query=query, plan=self._plan, round_=self._round)
        if answer.owner in self._owners:
            return 0, 1
        self._owners[answer.owner] = answer
        self.seeded |= answer.seeded
        return 1, 0

    def tally(self) -> Tally:
        """What the open query's answers add up to so far."""
        if self._query is None:
            raise Refused(wire.Code.WRONG_ROUND)
        if isinstance(self._query, HistogramQuery):
            total = np.zeros(self._query.bins, dtype=np.int64)
            for answer in self._owners.values():
                total += answer.values
            return HistogramTally(total, len(self._owners))
        if isinstance(self._query, CountQuery):
            pairs = {name: (int(answer.values[0]), int(answer.values[1])) for name, answer in self._owners.items()}
            return CountTally(pairs)
        if isinstance(self._query, TrainingQuery):
            # In the order of their ids: an average of floats depends on the order.
            return TrainingTally([self._owners[name].values for name in sorted(self._owners)])
        if isinstance(self._query, BitQuery):
            count = len(self._query.thresholds)
            answers, ones = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
            for batch in self._batches:
                assert batch.parts is not None
                answers += np.bincount(batch.parts, minlength=count)
                ones += np.bincount(batch.parts[batch.reports], minlength=count)
            return BitTally(tuple(answers.tolist()), tuple(ones.tolist()))
        return self._labels(self._query.channel.k)

    def _labels(self, k: int) -> LabelTally:
        """Reports in the order of their ids: keyed hashes, so an order that knows nothing of the values."""
        if not self._batches:
            return LabelTally(np.empty((0, k)), np.empty(0, dtype=np.int64))
        names = np.concatenate([batch.ids for batch in self._batches]).view(">u8")
        order = np.lexsort((names[:, 1], names[:, 0]))
        probs = np.concatenate([batch.probabilities for batch in self._batches if batch.probabilities is not None])[order]
        reports = np.concatenate([batch.reports for batch in self._batches])[order]
        # A randomised score takes its number from the id, which is uniform and was fixed before the report was drawn.
        return LabelTally(all_scores(self._score, probs, u=names[order, 0] / 2.0**64), reports)
