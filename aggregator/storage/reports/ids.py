"""The report ids of stored campaigns, held in memory.

With them a server finds reports that are sent again, without one database row per report.
"""

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
    .execution_options(yield_per=256)
)


class StoredIds:
    """The report ids of the campaigns in the store.

    It must be used within a transaction that holds the campaign's open round.
    """

    def __init__(self) -> None:
        self._known: dict[str, ReportIds] = {}
        # For each campaign, how many batches were read, and the row id of the last one.
        self._read: dict[str, tuple[int, int]] = {}

    def of(self, db: Connection, campaign: str) -> ReportIds:
        """The ids of a campaign, including those that other processes have added since."""
        if campaign not in self._known:
            self._forget(db)
        stored = db.execute(_BATCHES, {"campaign": campaign}).scalar_one()
        for afresh in (False, True):
            if afresh or campaign not in self._known:
                self._known[campaign], self._read[campaign] = ReportIds(), (0, 0)
            if self._read[campaign][0] != stored:
                self._catch_up(db, campaign)
            # The database may give a row id a second time. Then the counts differ: read all again.
            if self._read[campaign][0] == stored:
                break
        return self._known[campaign]

    def added(self, db: Connection, campaign: str, count: int) -> None:
        """Note that this process has stored `count` more batches, whose ids are known."""
        read, _ = self._read[campaign]
        self._read[campaign] = read + count, db.execute(_LAST).scalar_one() or 0

    def clear(self) -> None:
        """Forget all ids, after a transaction failed: the ids that it added are not stored."""
        self._known, self._read = {}, {}

    def _catch_up(self, db: Connection, campaign: str) -> None:
        count, last = self._read[campaign]
        found = db.execute(_SINCE, {"campaign": campaign, "last": last})
        # Many small answers at a time: adding ids costs much more a call than an id.
        for rows in found.partitions():
            ids = [wire.Answer.FromString(row.answer).batch.ids for row in rows]
            self._known[campaign].add(b"".join(ids))
            count, last = count + len(rows), max(last, *(row.id for row in rows))
        self._read[campaign] = count, last

    def _forget(self, db: Connection) -> None:
        """Free the memory of campaigns that take no more reports."""
        alive = set(db.execute(_OPEN).scalars())
        for campaign in set(self._known) - alive:
            del self._known[campaign], self._read[campaign]
