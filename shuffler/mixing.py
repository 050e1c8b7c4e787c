"""Mixes the sealed reports of a round: one batch in a random order, under new ids, and signed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import Entropy
from confide.protocol.methods.base import Batch
from confide.protocol.shuffling import Handover, handover_digest
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import ID_BYTES, VERSION, serialise


class NoCrowd(Exception):
    """A round has fewer reports or owners than its plan promises; nothing of it may leave."""


@dataclass(frozen=True)
class Fewest:
    """The fewest reports of a round, and the fewest owners they are of, that may be mixed."""

    reports: int
    owners: int

    def check(self, batches: Sequence[Batch]) -> None:
        """Refuse these batches of a round unless they have as many."""
        reports = sum(map(len, batches))
        owners = len({batch.sender for batch in batches if len(batch)})
        if reports < self.reports or owners < self.owners:
            raise NoCrowd(
                f"a round has {reports} reports of {owners} owners and the plan promises "
                f"{self.reports} of {self.owners}; nothing of it was handed over"
            )


def mixed(
    batches: Sequence[Batch],
    *,
    fewest: Fewest,
    plan: bytes,
    round_: int,
    sizes: Sequence[int],
    key: Ed25519PrivateKey,
    entropy: Entropy,
) -> bytes:
    """Return the answer that hands over these batches, in which no id occurs twice.

    It decides by the reports themselves whether there are enough, however the round was closed.
    Every report gets 16 random bytes as its new id, and reports stand in the order of these. So the
    order is uniform among all, ids and order say nothing of owners or of arrival, and all that is
    told of owners is in `sizes`: how many reports each has sent to the campaign so far.
    """
    fewest.check(batches)
    sealed = np.concatenate([batch.columns["sealed"] for batch in batches])
    drawn = np.frombuffer(entropy(ID_BYTES * len(sealed)), dtype=f"S{ID_BYTES}")
    order = np.argsort(drawn, kind="stable")
    ids, reports = drawn[order].tobytes(), sealed[order].tobytes()
    if (drawn[order][1:] == drawn[order][:-1]).any():
        # With probability below n^2 / 2^129: such randomness is broken, and hides nobody.
        raise BadInput("two of the new ids are equal; accepted is randomness that repeats nothing")
    handover = Handover(
        plan=plan,
        round=round_,
        reports=len(sealed),
        digest=handover_digest(ids, reports),
        owners=sum(size > 0 for size in sizes),
        largest=max(sizes),
    )
    batch = wire.ReportBatch(
        version=VERSION,
        plan=plan,
        round=round_,
        ids=ids,
        seeded=any(batch.seeded for batch in batches),
        body=serialise(wire.SealedReports(sealed=reports)),
        handover=handover.sign(key),
    )
    return serialise(wire.Answer(version=VERSION, code=wire.Code.OK, batch=batch))
