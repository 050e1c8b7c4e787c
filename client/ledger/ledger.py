"""The ledger of a data owner: every charge and its answer are on disk before the answer leaves.

One commit holds both. The same query asked again gets the same bytes and spends nothing. An answer
is drawn before its commit and without a lock; a draw that is not committed is thrown away and may
be repeated. A crash before the commit leaves nothing spent; after a crash behind it, the next
process sends the answer that was kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from confide.client.ledger import copies, history, identities, spending
from confide.client.ledger.charges import Cost, LedgerQuery, SpendingLimits
from confide.client.ledger.database import open_database, transaction
from confide.client.ledger.history import CampaignSpending
from confide.client.ledger.mark import check_mark, raise_mark

Draw = Callable[[list[int]], bytes]


class Ledger:
    """A SQLite file, synced in full unless it is of a simulation.

    One process at a time writes; others wait. A ledger that ends with its simulation has no mark,
    because nobody puts an older copy in its place.
    """

    def __init__(self, path: Path, *, synced: bool = True) -> None:
        self._path, self._db = path, open_database(path, synced=synced)
        self._synced = synced

    def close(self) -> None:
        self._db.close()

    def bind(self, secret: bytes) -> None:
        """Tie the ledger to the secret that its records are named with, and to its file.

        Any other secret, a copy of the file and a backup are refused: under another secret no old
        spend is recognised, and a copy does not learn what the original spends.
        """
        copies.bind(self._db, self._path, secret)

    def admit(
        self, records: Sequence[bytes], persons: Sequence[bytes] | None = None, *, new: bool = False
    ) -> None:
        """Note the records of a file as known, and the persons that they belong to.

        If most of them are new to a ledger that knows others, that is an error unless `new`: a file
        whose ids were rewritten looks like other records with full budgets, and only the owner can
        tell the difference. A record that belongs to a person for the first time charges the person
        what it has spent. A record may not move from one person to another.
        """
        identities.admit(self._db, records, persons, new=new)

    def persons(self) -> dict[bytes, bytes]:
        """The person of every record that ever belonged to one."""
        return identities.persons_of(self._db)

    def charged(self, plan: bytes) -> set[bytes]:
        """The records and persons that paid for a plan; none if it was never answered."""
        return spending.charged(self._db, plan)

    def training(self, plan: bytes, aggregator: bytes) -> bytes | None:
        """The plan of a training that this owner answered and this key signed; else None."""
        return spending.training(self._db, plan, aggregator)

    def remembered(self, plan: bytes, query: bytes) -> bytes | None:
        """The answer that was given to a query."""
        earlier = spending.answered(self._db, plan, query)
        return None if earlier is None else earlier.answer

    def answer(
        self,
        asked: LedgerQuery,
        *,
        cost: Cost,
        limits: SpendingLimits,
        payers: Sequence[tuple[bytes, ...]],
        prepare: Callable[[], None] = lambda: None,
        draw: Draw,
        now: datetime,
    ) -> bytes | None:
        """Draw an answer from the records that may still answer, charge them, and keep both.

        `payers` holds, for each place, the record and the person it belongs to, if any. A place may
        answer when none of its payers has answered this plan before and their totals, this charge
        included, stay within the limits. The result is None if too few places may.

        A plan that asks the owner as a whole is charged in full with its first query. Those charged
        then, and no others, take part in later ones: one query a round and at most `rounds` in all.
        These are refused while the limits are below what those records have spent.

        `prepare` is called once before anything is drawn, if there is an answer to draw; an error
        of it charges nothing. If drawing fails the charge stays: the other side learns of the
        failure, which may depend on the records.
        """
        able = partial(spending.able_places, self._db, asked, cost=cost, limits=limits)
        # One transaction, which is over before anything is drawn, reads the file once.
        with transaction(self._db, "DEFERRED"):
            spending.number_payers(self._db, payers)
            seen, places = self._changes(), able()
        if places:
            prepare()
        while places:
            drawn = _try(draw, places)
            with transaction(self._db):
                if self._synced:
                    check_mark(self._db, self._path)
                earlier = spending.answered(self._db, asked.plan, asked.query)
                if earlier is not None:
                    return earlier.answer
                # Nobody else can write any more, so what nobody has changed is still so.
                still = places if self._changes() == seen else able()
                if still == places:
                    spending.charge(self._db, asked, cost=cost, answer=drawn.answer, now=now)
            if still == places:
                if self._synced:
                    raise_mark(self._db, self._path)
                return drawn.result()
            # Another process spent some of these records meanwhile: draw again without them.
            places = still
        return self.remembered(asked.plan, asked.query)

    def may_leave(self, plan: bytes, query: bytes, limits: SpendingLimits) -> bool:
        """Whether the records behind a drawn answer are enough, and within today's limits."""
        return spending.may_leave(self._db, plan, query, limits=limits)

    def together(self, plan: bytes, query: bytes) -> bool:
        """Whether a model saw many records at once for the answer to a query."""
        return spending.together(self._db, plan, query)

    def acknowledge(self, *, plan: bytes, query: bytes, code: int) -> None:
        """Keep the code of the aggregator's first receipt for an answer."""
        with transaction(self._db):
            self._db.execute(
                f"UPDATE queries SET receipt = ? WHERE {spending.ONE_QUERY} AND receipt IS NULL",
                (code, plan, query),
            )

    def unacknowledged(self, plan: bytes) -> list[tuple[bytes, bytes]]:
        """The queries whose answers may not have arrived, with those answers, oldest first."""
        return history.unacknowledged(self._db, plan)

    def campaigns(self) -> list[CampaignSpending]:
        """Every campaign answered so far, oldest first."""
        return history.campaigns(self._db)

    def spent_by_record(self) -> tuple[int, float]:
        """How many records or persons have ever answered, and the largest epsilon of any."""
        return history.spent_by_record(self._db)

    def cannot_pay(self, cost: Cost, limits: SpendingLimits) -> tuple[int, int]:
        """How many records or persons are known, and how many have too little left for a charge."""
        return history.cannot_pay(self._db, cost, limits)

    def version(self) -> int:
        """A number that changes when another connection, and not this one, writes to the file."""
        (found,) = self._db.execute("PRAGMA data_version").fetchone()
        return int(found)

    def _changes(self) -> tuple[int, int]:
        """Two numbers that do not change while nobody writes to the file."""
        return self.version(), self._db.total_changes

    def backup(self, path: Path) -> None:
        """Write a consistent copy into a new file; it can be merged into a ledger, not used."""
        copies.back_up(self._db, path)

    def merge(self, other: Path, secret: bytes) -> None:
        """Add all rows of another ledger of the same secret that this one lacks; none is lost."""
        copies.merge(self._db, other, path=self._path, secret=secret)

    def check_newest(self) -> None:
        """Refuse an older copy that was put in the place of this ledger."""
        check_mark(self._db, self._path)


@dataclass(frozen=True)
class _Drawn:
    """What came of drawing an answer: the answer, or the error that drawing ended with."""

    answer: bytes | None
    error: Exception | None = None

    def result(self) -> bytes | None:
        if self.error is not None:
            raise self.error
        return self.answer


def _try(draw: Draw, places: list[int]) -> _Drawn:
    try:
        return _Drawn(draw(places))
    except Exception as error:
        return _Drawn(None, error)
