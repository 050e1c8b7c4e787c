"""What answers add up to, whatever order they came in."""

from collections.abc import Mapping, Sequence

import numpy as np

from confide.aggregator.campaigns.report_ids import again, folded
from confide.protocol.methods.queries import (
    BitQuery,
    BitTally,
    CountQuery,
    CountTally,
    HistogramQuery,
    HistogramTally,
    LabelQuery,
    LabelTally,
    OwnerQuery,
    Query,
    Tally,
    TrainingTally,
)
from confide.protocol.scores.classification import Score, all_scores
from confide.protocol.wire.packing import Array, Batch, OwnerAnswer


def tally_batches(query: BitQuery | LabelQuery, batches: Sequence[Batch], score: Score) -> Tally:
    """The tally of reports that are each to be counted."""
    if isinstance(query, BitQuery):
        count = len(query.thresholds)
        answers, ones = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        for batch in batches:
            assert batch.parts is not None
            answers += np.bincount(batch.parts, minlength=count)
            ones += np.bincount(batch.parts[batch.reports], minlength=count)
        return BitTally(tuple(answers.tolist()), tuple(ones.tolist()))
    return _labels(query.channel.k, batches, score)


def tally_owners(query: OwnerQuery, owners: Mapping[bytes, OwnerAnswer]) -> Tally:
    """The tally of one answer an owner, by who sent it."""
    if isinstance(query, HistogramQuery):
        total = np.zeros(query.bins, dtype=np.int64)
        for answer in owners.values():
            total += answer.values
        return HistogramTally(
            total, len(owners), tuple(int(answer.values.sum()) for answer in owners.values())
        )
    # In the order of the ids they give: an average of floats depends on the order.
    names = sorted(owners, key=lambda name: (owners[name].owner, name))
    if isinstance(query, CountQuery):
        return CountTally(
            {name: (int(owners[name].values[0]), int(owners[name].values[1])) for name in names}
        )
    return TrainingTally([owners[name].values for name in names])


def empty_tally(query: Query, score: Score) -> Tally:
    """What a query adds up to that nobody answered."""
    return (
        tally_owners(query, {})
        if isinstance(query, OwnerQuery)
        else tally_batches(query, [], score)
    )


def counted_once(batches: Sequence[Batch], earlier: Sequence[Array]) -> list[Batch]:
    """The batches without the ids that are among the earlier ones or in a batch before: an id
    counts once in a campaign."""
    if not batches:
        return []
    known = sum(len(ids) for ids in earlier)
    repeated = again(folded(np.concatenate([*earlier, *(batch.ids for batch in batches)])))
    edges = known + np.cumsum([0, *(len(batch) for batch in batches)])
    return [
        batch.only(np.flatnonzero(~repeated[start:stop])) if repeated[start:stop].any() else batch
        for batch, start, stop in zip(batches, edges[:-1], edges[1:], strict=True)
    ]


def _labels(k: int, batches: Sequence[Batch], score: Score) -> LabelTally:
    """Reports in the order of the first words of their ids; a randomised score takes its number
    from the second words.

    Ids are keyed hashes, fixed before a report is drawn, so their words are uniform and independent
    of each other and of the record. A test that bets on reports one after the other needs an order
    that says nothing of their scores: the number must not come from what they are sorted by.
    """
    if not batches:
        return LabelTally(np.empty((0, k)), np.empty(0, dtype=np.int64))
    names = np.concatenate([batch.ids for batch in batches]).view(">u8")
    # Equal first words, one pair in 2^64, are told apart by the second: any rule does that knows
    # nothing of arrival.
    order = np.lexsort((names[:, 1], names[:, 0]))
    probs = np.concatenate(
        [batch.probabilities for batch in batches if batch.probabilities is not None]
    )[order]
    reports = np.concatenate([batch.reports for batch in batches])[order]
    u = (names[order, 1] >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return LabelTally(all_scores(score, probs, u=u), reports)
