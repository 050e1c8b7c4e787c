"""Stores submissions: each batch once, the progress of its owner, and counts of refusals.

Everything here happens within the caller's transaction. Rows are written in the same order
everywhere, so that two processes never wait for each other.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from confide.aggregator.campaigns.allowance import Counted
from confide.aggregator.campaigns.report_ids import ReportIds
from confide.aggregator.storage.database import insert
from confide.aggregator.storage.reports.admission import (
    AdmittedPart,
    admit,
    sent_so_far,
    stored_digests,
)
from confide.aggregator.storage.reports.ids import StoredIds
from confide.aggregator.storage.reports.submissions import (
    Key,
    Rejection,
    Stored,
    Submission,
    summed,
)
from confide.aggregator.storage.schema import batches, parts, queries, rejections
from confide.aggregator.storage.stored_campaign import DEADLINE
from confide.protocol.wire import wire_pb2 as wire

# The most rows that one statement inserts.
MOST_ROWS = 64
_COLUMNS = "campaign", "round", "owner", "reports", "digest", "answer"
# What the row of a round counts.
_COUNTS = "batches", "finished", "contributed", "reports"


# Statements are built once, because that takes longer than running them. This one locks the round
# until the transaction ends: nobody closes it, and no two processes count the same report, or take
# more from an owner than the round takes.
_ROUND_STATE = (
    select(queries.c.closed, queries.c.because)
    .where(queries.c.campaign == bindparam("campaign"), queries.c.round == bindparam("round"))
    .with_for_update()
)
_MORE = (
    update(queries)
    .where(
        queries.c.campaign == bindparam("its_campaign"), queries.c.round == bindparam("its_round")
    )
    .values({name: queries.c[name] + bindparam(f"more_{name}") for name in _COUNTS})
)
_BEFORE = select(parts.c.owner, parts.c.reports, parts.c.finished).where(
    parts.c.campaign == bindparam("campaign"),
    parts.c.round == bindparam("round"),
    parts.c.owner.in_(bindparam("owners", expanding=True)),
)


@cache
def _advance(kind: str) -> Any:
    row = insert(kind, parts)
    more = {
        "batches": parts.c.batches + row.excluded.batches,
        "reports": parts.c.reports + row.excluded.reports,
        "bytes": parts.c.bytes + row.excluded.bytes,
        "seeded": parts.c.seeded | row.excluded.seeded,
        "finished": parts.c.finished | row.excluded.finished,
        "code": row.excluded.code,
    }
    return row.on_conflict_do_update(index_elements=["campaign", "round", "owner"], set_=more)


@cache
def _refuse(kind: str) -> Any:
    row = insert(kind, rejections)
    more = {"times": rejections.c.times + row.excluded.times}
    return row.on_conflict_do_update(index_elements=["campaign", "owner", "code"], set_=more)


def store_all(
    db: Connection, items: Sequence[Submission | Rejection], known: StoredIds
) -> list[Stored]:
    """Write every submission whose round is open, and return the result of each item."""
    answers = [Stored(wire.Code.OK)] * len(items)
    rounds: dict[tuple[str, int], list[int]] = {}
    for place, item in enumerate(items):
        if isinstance(item, Submission):
            rounds.setdefault(item.key[:2], []).append(place)
    # The same order everywhere, so that two processes never wait for each other.
    for key in sorted(rounds):
        submissions = [
            item for place in rounds[key] if isinstance(item := items[place], Submission)
        ]
        for place, answer in zip(rounds[key], _store_round(db, submissions, known), strict=True):
            answers[place] = answer
    refused = summed(items)
    if refused:
        db.execute(_refuse(db.dialect.name), [rejection._asdict() for rejection in refused])
    return answers


def _round_state(db: Connection, campaign: str, number: int) -> int:
    """Lock a round until the transaction ends; return OK if it is open, or why it is not."""
    found = db.execute(_ROUND_STATE, {"campaign": campaign, "round": number}).first()
    if found is None:
        return wire.Code.WRONG_ROUND
    if found.closed is None:
        return wire.Code.OK
    return wire.Code.LATE if found.because == DEADLINE else wire.Code.SURPLUS


def _store_round(
    db: Connection, submissions: Sequence[Submission], known: StoredIds
) -> list[Stored]:
    """Store the submissions of one round, in the order they came.

    Batches that were stored before are accepted whenever they come again. Others are accepted while
    the round is open and `admitted` counts them.
    """
    campaign, number, _ = submissions[0].key
    state = _round_state(db, campaign, number)
    if state != wire.Code.OK:
        return [_again(db, submission, state) for submission in submissions]
    # An owner asked as a whole answers once, whatever ids it gives, so none need be known.
    ids = ReportIds() if submissions[0].whole else known.of(db, campaign)
    sent: dict[Key, Counted] = {}
    found: list[AdmittedPart] = []
    for submission in submissions:
        already = sent.get(submission.key) or sent_so_far(db, submission.key)
        one, sent[submission.key] = admit(db, submission, already=already, ids=ids)
        found.append(one)
    written = [one.submission for one in found if one.written]
    added = iter(_store(db, written, known) if written else ())
    results = []
    for one in found:
        accepted = next(added) if one.written else 0
        results.append(Stored(one.code, accepted, one.reports - accepted))
    return results


def _again(db: Connection, submission: Submission, state: int) -> Stored:
    """The result after the round has closed: OK if all batches were stored before, else why not."""
    if not submission.batches or {batch.digest for batch in submission.batches} - stored_digests(
        db, submission
    ):
        return Stored(state)
    return Stored(wire.Code.OK, duplicates=sum(batch.reports for batch in submission.batches))


def _store(db: Connection, submissions: list[Submission], known: StoredIds) -> list[int]:
    """Add a round's batches and its owners' progress; return the reports each submission added."""
    rows = {
        (submission.owner, batch.digest): (
            *submission.key,
            batch.reports,
            batch.digest,
            batch.answer,
        )
        for submission in reversed(submissions)
        for batch in reversed(submission.batches)
    }
    inserted = _insert(db, list(rows.values()))
    mine: dict[Key, list[Submission]] = {}
    accepted = []
    for submission in submissions:
        # Of an owner's batches with the same digest, the first is stored.
        names = {(submission.owner, batch.digest): batch for batch in reversed(submission.batches)}
        its = [batch for name, batch in names.items() if name in inserted]
        inserted -= set(names)
        mine.setdefault(submission.key, []).append(replace(submission, batches=its))
        accepted.append(sum(batch.reports for batch in its))
    more = [_progress(key, mine[key]) for key in sorted(mine)]
    counts, (campaign, number, _) = _counts(db, more), submissions[0].key
    db.execute(_advance(db.dialect.name), more)
    if any(counts.values()):
        added = {f"more_{name}": counts[name] for name in _COUNTS}
        db.execute(_MORE, {"its_campaign": campaign, "its_round": number} | added)
    if counts["batches"] and not submissions[0].whole:
        known.added(db, campaign, counts["batches"])
    return accepted


def _counts(db: Connection, more: Sequence[dict[str, Any]]) -> Counter[str]:
    """What rows of owners will add to the counts of their round; each owner counts once."""
    counts: Counter[str] = Counter()
    for first in range(0, len(more), MOST_ROWS):
        some = more[first : first + MOST_ROWS]
        its = {name: some[0][name] for name in ("campaign", "round")}
        found = db.execute(_BEFORE, its | {"owners": [row["owner"] for row in some]})
        before = {row.owner: row for row in found}
        for row in some:
            was = before.get(row["owner"])
            counts["batches"] += row["batches"]
            counts["reports"] += row["reports"]
            counts["finished"] += row["finished"] and not (was and was.finished)
            counts["contributed"] += row["reports"] > 0 and not (was and was.reports)
    return counts


def _progress(key: Key, submissions: list[Submission]) -> dict[str, Any]:
    """What submissions of one owner, with the batches that were added, change in its row."""
    added = [batch for submission in submissions for batch in submission.batches]
    return {
        **key._asdict(),
        "batches": len(added),
        "reports": sum(batch.reports for batch in added),
        "bytes": sum(len(batch.answer) for batch in added),
        "seeded": any(submission.seeded for submission in submissions),
        "finished": any(submission.finished for submission in submissions),
        "code": next((submission.code for submission in submissions if submission.code), None),
    }


def _insert(db: Connection, rows: list[tuple[Any, ...]]) -> set[tuple[int, bytes]]:
    """Insert batches, and return the owner and digest of those that were added.

    Many are inserted in one statement, which frees the interpreter meanwhile. The statement does
    not return the added rows: with large batches SQLite would take three times as long.
    """
    row = f"({', '.join(['?' if db.dialect.name == 'sqlite' else '%s'] * len(_COLUMNS))})"
    added: set[tuple[int, bytes]] = set()
    for first in range(0, len(rows), MOST_ROWS):
        some = rows[first : first + MOST_ROWS]
        text = (
            f"INSERT INTO batches ({', '.join(_COLUMNS)}) VALUES {', '.join([row] * len(some))} ON "
            "CONFLICT DO NOTHING"
        )
        found = db.exec_driver_sql(text, tuple(itertools.chain.from_iterable(some)))
        every = found.rowcount == len(some)
        added |= {(one[2], one[4]) for one in some if every or _holds(db, one)}
    return added


def _holds(db: Connection, row: tuple[Any, ...]) -> bool:
    """Whether exactly this row is stored, and not another one with the same digest."""
    its = [batches.c[column] == value for column, value in zip(_COLUMNS, row, strict=True)]
    return db.execute(select(batches.c.id).where(*its)).first() is not None
