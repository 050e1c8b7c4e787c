"""Admits the batches of a submission, given what is stored of their owner.

What is new is decided by the ids and digests that are stored, and how much of it counts by
`confide.aggregator.campaigns.admission.admitted`. Everything happens within the caller's
transaction, which holds the round.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, bindparam, case, func, select

from confide.aggregator.campaigns.admission import admitted
from confide.aggregator.campaigns.allowance import Counted
from confide.aggregator.campaigns.report_ids import ReportIds
from confide.aggregator.storage.reports.submissions import Key, Packed, Submission
from confide.aggregator.storage.schema import batches, parts
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import ID_BYTES

# Built once, because that takes longer than running it.
_HERE = parts.c.round == bindparam("round")
_SENT = select(
    *(
        func.coalesce(func.sum(case((_HERE, column), else_=0)), 0)
        for column in (parts.c.batches, parts.c.reports)
    ),
    *(func.coalesce(func.sum(column), 0) for column in (parts.c.reports, parts.c.bytes)),
).where(parts.c.campaign == bindparam("campaign"), parts.c.owner == bindparam("owner"))


class AdmittedPart(NamedTuple):
    """What is admitted of a submission: the batches that add something before the first refused.

    `reports` counts all reports before the refused batch; `code` is OK if no batch was refused.
    """

    submission: Submission
    reports: int
    code: int

    @property
    def written(self) -> bool:
        """Whether anything of the submission is stored, if only that its owner has finished."""
        return self.code == wire.Code.OK or bool(self.submission.batches)


def admit(
    db: Connection, submission: Submission, *, already: Counted, ids: ReportIds
) -> tuple[AdmittedPart, Counted]:
    """Admit the batches of a submission; also return the counts of its owner with them.

    The ids of the admitted reports are known from now on.
    """
    new = _new(db, submission, already=already, ids=ids)
    sizes = ((batch.reports, len(batch.answer)) for _, batch in new)
    taken, after = admitted(sizes, already, submission.limit)
    code, before = wire.Code.OK, submission.batches
    if taken < len(new):
        place, _ = new[taken]
        code, before = wire.Code.SURPLUS, before[:place]
        submission = replace(submission, finished=False, code=None)
        if not submission.whole:
            ids.take_back()
            ids.add(b"".join(batch.ids for _, batch in new[:taken]))
    submission = replace(submission, batches=[batch for _, batch in new[:taken]])
    return AdmittedPart(submission, sum(batch.reports for batch in before), code), after


def _new(
    db: Connection, submission: Submission, *, already: Counted, ids: ReportIds
) -> list[tuple[int, Packed]]:
    """The batches of a submission that add something, each with its place and its new reports.

    The ids of these reports are known from now on. Without ids, all reports of a batch are new.
    """
    if submission.whole:
        return list(enumerate(submission.batches[: 0 if already.batches else 1]))
    fresh = ids.add(b"".join(batch.ids for batch in submission.batches))
    edges = np.cumsum([0, *(len(batch.ids) // ID_BYTES for batch in submission.batches)])
    added = np.diff(np.concatenate([[0], np.cumsum(fresh)])[edges]).tolist()
    # A batch without reports has no ids, so its digest tells whether it is stored.
    bare = not all(batch.ids for batch in submission.batches)
    stored = stored_digests(db, submission) if bare else set()
    new = []
    for place, (batch, more) in enumerate(zip(submission.batches, added, strict=True)):
        if more:
            new.append((place, batch if more == batch.reports else batch._replace(reports=more)))
        elif not batch.ids and batch.digest not in stored:
            stored.add(batch.digest)
            new.append((place, batch))
    return new


def sent_so_far(db: Connection, key: Key) -> Counted:
    """Read how much an owner has sent to a round, and to the campaign."""
    return Counted(*(int(number) for number in db.execute(_SENT, key._asdict()).one()))


def stored_digests(db: Connection, submission: Submission) -> set[bytes]:
    """The digests of those batches of a submission that are stored."""
    names = {batch.digest for batch in submission.batches}
    mine = (
        (batches.c.campaign == submission.campaign)
        & (batches.c.round == submission.round)
        & (batches.c.owner == submission.owner)
    )
    return (
        set(db.execute(select(batches.c.digest).where(mine, batches.c.digest.in_(names))).scalars())
        if names
        else set()
    )
