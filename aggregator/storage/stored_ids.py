"""The report ids of campaigns in the store, held in memory: a server finds what is sent again
without a row a report."""

from sqlalchemy import Connection, bindparam, func, select

from confide.aggregator.campaigns.report_ids import ReportIds
from confide.aggregator.storage.schema import batches, campaigns, queries
from confide.aggregator.storage.stored_campaign import OPEN
from confide.protocol.wire import wire_pb2 as wire

_BATCHES = select(func.coalesce(func.sum(queries.c.batches), 0)).where(
    queries.c.campaign == bindparam("campaign")
)
_LAST = select(func.max(batches.c.id))
_OPEN = select(campaigns.c.id).where(campaigns.c.state == OPEN)
_SINCE = (
    select(batches.c.id, batches.c.answer)
    .where(batches.c.campaign == bindparam("campaign"), batches.c.id > bindparam("last"))
    .execution_options(yield_per=64)
)


class StoredIds:
    """The ids of campaigns in the store. Asked within a transaction that holds the campaign's open
    round."""

    def __init__(self) -> None:
        self._known: dict[str, ReportIds] = {}
        # How many batches were read, and the last of them.
        self._read: dict[str, tuple[int, int]] = {}

    def of(self, db: Connection, campaign: str) -> ReportIds:
        """The ids of a campaign, with what other processes have added since."""
        if campaign not in self._known:
            self._forget(db)
        stored = db.execute(_BATCHES, {"campaign": campaign}).scalar_one()
        for afresh in (False, True):
            if afresh or campaign not in self._known:
                self._known[campaign], self._read[campaign] = ReportIds(), (0, 0)
            if self._read[campaign][0] != stored:
                self._catch_up(db, campaign)
            # A number that was given to another batch before may be given again: then all are read.
            if self._read[campaign][0] == stored:
                break
        return self._known[campaign]

    def added(self, db: Connection, campaign: str, count: int) -> None:
        """Note that this process has stored so many batches, whose ids are known."""
        read, _ = self._read[campaign]
        self._read[campaign] = read + count, db.execute(_LAST).scalar_one() or 0

    def clear(self) -> None:
        """After a transaction that failed: what it added is not stored."""
        self._known, self._read = {}, {}

    def _catch_up(self, db: Connection, campaign: str) -> None:
        count, last = self._read[campaign]
        found = db.execute(_SINCE, {"campaign": campaign, "last": last})
        for row in found:
            self._known[campaign].add(wire.Answer.FromString(row.answer).batch.ids)
            count, last = count + 1, max(last, row.id)
        self._read[campaign] = count, last

    def _forget(self, db: Connection) -> None:
        """Campaigns that take no more reports need no memory."""
        alive = set(db.execute(_OPEN).scalars())
        for campaign in set(self._known) - alive:
            del self._known[campaign], self._read[campaign]
