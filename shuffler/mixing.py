"""Mixes the sealed reports of a round: one batch in a random order, under new ids, and signed."""

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import Entropy
from confide.protocol.methods.base import Batch
from confide.protocol.shuffling import Handover, handover_digest
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import ID_BYTES, VERSION, serialise


def mixed(
    batches: Sequence[Batch],
    *,
    plan: bytes,
    round_: int,
    sizes: Sequence[int],
    key: Ed25519PrivateKey,
    entropy: Entropy,
) -> bytes:
    """Return the answer that hands over these batches, in which no id occurs twice.

    Every report gets 16 random bytes as its new id, and reports stand in the order of these. So the
    order is uniform among all, ids and order say nothing of owners or of arrival, and all that is
    told of owners is in `sizes`: how many reports each has sent to the campaign so far.
    """
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
