"""The records that the ledger knows, and the persons that they belong to."""

import sqlite3
from collections.abc import Sequence

from confide.client.ledger.database import has_flag, transaction
from confide.client.ledger.schema import EARLIER_NAMES
from confide.client.ledger.spending import number_payers
from confide.protocol.errors import BadInput


def admit(
    db: sqlite3.Connection,
    records: Sequence[bytes],
    persons: Sequence[bytes] | None,
    *,
    new: bool,
) -> None:
    """Note the records of a file, and the persons they belong to; see `Ledger.admit`."""
    with transaction(db, "DEFERRED"):
        number_payers(db, [(record,) for record in records])
    with transaction(db):
        (before,) = db.execute("SELECT COUNT(*) FROM known").fetchone()
        (strange,) = db.execute(
            "SELECT COUNT(*) FROM asked WHERE record NOT IN (SELECT record FROM known)"
        ).fetchone()
        many = 2 * strange > len(records) or (strange and has_flag(db, EARLIER_NAMES))
        if before and many and not new:
            raise BadInput(
                f"{strange} of {len(records)} records are new to the ledger, which knows {before}. "
                "If their ids were rewritten, they would be given a second budget: restore the ids "
                "they had. If they really are others, say so with --new-records"
            )
        if strange and persons is None and not new:
            _check_no_person_is_missing(db, strange)
        db.execute("DELETE FROM flags WHERE name = ?", (EARLIER_NAMES,))
        db.execute("INSERT OR IGNORE INTO known SELECT record FROM asked ORDER BY record")
        if persons is not None:
            _link(db, dict(zip(records, persons, strict=True)))


def persons_of(db: sqlite3.Connection) -> dict[bytes, bytes]:
    """The person of every record that ever belonged to one."""
    return dict(db.execute("SELECT record, person FROM persons"))


def _check_no_person_is_missing(db: sqlite3.Connection, strange: int) -> None:
    """Refuse new records without a person if others belong to persons, who may be the same."""
    if db.execute("SELECT 1 FROM persons").fetchone() is not None:
        raise BadInput(
            f"{strange} records are new and have no person, while others of this ledger belong to "
            "persons, who would get a second budget: add the column `person`. If each of them is "
            "of somebody else, say so with --new-records"
        )


def _link(db: sqlite3.Connection, persons: dict[bytes, bytes]) -> None:
    """Note the person of each record, and charge that person what the record spent before."""
    known = persons_of(db)
    moved = sum(known.get(record, person) != person for record, person in persons.items())
    if moved:
        raise BadInput(
            f"{moved} records belonged to other persons before; accepted is the person that each "
            "has had"
        )
    for record, person in persons.items():
        if record not in known:
            db.execute("INSERT INTO persons VALUES (?, ?)", (record, person))
            db.execute(
                "INSERT INTO spends SELECT ?, plan, query, epsilon, delta FROM spends WHERE record "
                "= ? ON CONFLICT (record, plan) DO UPDATE SET epsilon = epsilon + "
                "excluded.epsilon, delta = delta + excluded.delta",
                (person, record),
            )
