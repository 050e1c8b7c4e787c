"""The counts of a round, which every transaction that stores answers keeps up to date."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, insert, select, text

from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.storage.database import connect, writing
from confide.aggregator.storage.reports.deposit import MOST_ROWS, store_all
from confide.aggregator.storage.reports.ids import StoredIds
from confide.aggregator.storage.reports.submissions import Packed, Submission
from confide.aggregator.storage.reports.writer import Writer
from confide.aggregator.storage.round_store import RoundStore
from confide.aggregator.storage.schema import owners
from confide.protocol.wire import wire_pb2 as wire
from tests.support.servers.chaos import check_turnout
from tests.support.servers.databases import DATABASES, at_version
from tests.support.servers.servers import Place, holding, plan_now


@pytest.mark.parametrize("kind", DATABASES)
def test_a_round_counts_every_owner_once(
    kind: str, database: Callable[[str], str], tmp_path: Path
) -> None:
    """Four processes' writers take answers of the same owners, in any order, some twice, some
    without a report, and each owner finishes several times: the counts that the round carries are
    what its rows add up to, and known."""
    place, owners = Place(tmp_path / "aggregator", database(kind)), MOST_ROWS + 30
    try:
        campaign = place.campaign(plan_now())
        for i in range(owners):
            place.enrol(f"owner {i}")
        place.store.ask(campaign, 0, b"query", now=0.0, seconds=1.0)
        writers = [Writer(place.store.engine, ProcessStatus()) for _ in range(4)]
        # Every owner has three batches, but each fifth only one without reports; a third ends.
        batches = {
            owner: [Packed(os.urandom(32), 1, *_answer(owner, part)) for part in range(3)]
            if owner % 5
            else [Packed(os.urandom(32), 0, holding(b"nothing"))]
            for owner in range(1, owners + 1)
        }
        items = [
            Submission(campaign, 0, owner, [batch], finished=owner % 3 == 0)
            for owner, some in batches.items()
            for batch in some * 2
        ]
        random.Random(1).shuffle(items)
        waiting = [writers[i % 4].put(item) for i, item in enumerate(items)]
        assert {one.result().code for one in waiting} == {wire.Code.OK}
        for writer in writers:
            writer.close()
        came = [owner for owner in batches if owner % 5]
        known = sum(owner % 3 == 0 for owner in batches), len(came), 3 * len(came)
        assert place.store.turnout(campaign, 0) == known
        check_turnout(place, campaign)
    finally:
        place.close()


def test_counting_a_round_takes_no_longer_with_more_owners(place: Place) -> None:
    """Processes ask for the counts five times a second: SQLite takes as many steps for a thousand
    owners as for ten."""
    campaign, steps, taken = place.campaign(plan_now()), 0, []

    def step() -> None:
        nonlocal steps
        steps += 1

    @event.listens_for(place.store.engine, "checkout")
    def watch(connection: Any, *_: Any) -> None:
        connection.set_progress_handler(step, 1)

    for number, count in enumerate((10, 1_000)):
        place.store.ask(campaign, number, b"query", now=0.0, seconds=1.0)
        rows = [{"name": f"{number} {i}", "token": os.urandom(32)} for i in range(count)]
        with writing(place.store.engine).begin() as db:
            first = db.execute(select(func.coalesce(func.max(owners.c.id), 0))).scalar_one()
            db.execute(insert(owners), rows)
            items = [
                Submission(campaign, number, owner, finished=True)
                for owner in range(first + 1, first + count + 1)
            ]
            store_all(db, items, StoredIds())
        steps = 0
        assert place.store.turnout(campaign, number) == (count, 0, 0)
        taken.append(steps)
    assert 0 < taken[0] == taken[1]


@pytest.mark.parametrize("kind", DATABASES)
def test_rounds_of_an_earlier_version_are_counted(
    kind: str, database: Callable[[str], str], tmp_path: Path
) -> None:
    """A database of version 0008 with two rounds gets the counts that its rows add up to."""
    url = database(kind) or f"sqlite:///{tmp_path / 'confide.sqlite'}"
    at_version(url, "0008")
    engine = connect(url)
    with writing(engine).begin() as db:
        db.execute(
            text(
                "INSERT INTO campaigns (id, signed_plan, settings, state, created, leased_until) "
                "VALUES ('c', 'plan', '{}', 'open', 0, 0)"
            )
        )
        for number in (0, 1):
            asked = "INSERT INTO queries (campaign, round, digest, opened, deadline, batches) "
            db.execute(text(asked + "VALUES ('c', :number, 'd', 0, 1, 4)"), {"number": number})
        for owner, reports, finished in ((1, 5, True), (2, 0, True), (3, 7, False)):
            db.execute(text("INSERT INTO owners (id, name) VALUES (:i, :i)"), {"i": owner})
            part = "INSERT INTO parts (campaign, round, owner, batches, reports, bytes, seeded, "
            part += "finished) VALUES ('c', 0, :owner, 1, :reports, 0, :no, :finished)"
            its = {"owner": owner, "reports": reports, "finished": finished, "no": False}
            db.execute(text(part), its)
    engine.dispose()
    at_version(url, "head")
    engine = connect(url)
    assert RoundStore(engine).turnout("c", 0) == (2, 2, 12)
    assert RoundStore(engine).turnout("c", 1) == (0, 0, 0)
    engine.dispose()


def _answer(owner: int, part: int) -> tuple[bytes, bytes]:
    """An answer of one report, and its id."""
    name = b"%08d%08d" % (owner, part)
    return wire.Answer(batch=wire.ReportBatch(ids=name)).SerializeToString(), name
