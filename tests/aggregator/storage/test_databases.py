"""Closed rounds, migrations, versions and strange paths, on both databases."""

import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.storage import views
from confide.aggregator.storage.database import latest_version
from confide.aggregator.storage.reports.submissions import Packed, Submission
from confide.aggregator.storage.reports.writer import Writer
from confide.aggregator.storage.schema import metadata
from confide.protocol.wire import wire_pb2 as wire
from tests.support.repository.places import ROOT
from tests.support.servers.databases import DATABASES, needs_postgres
from tests.support.servers.servers import Place, eventually, holding, plan_now


@pytest.mark.parametrize("kind", DATABASES)
def test_no_batch_enters_a_closed_round(
    kind: str, database: Callable[[str], str], tmp_path: Path
) -> None:
    """Four writers race with the close: when it has returned, what is stored is what was
    acknowledged, and stays that."""
    place = Place(tmp_path / "aggregator", database(kind))
    try:
        plan = plan_now()
        campaign = place.campaign(plan)
        place.enrol("owner")
        place.store.ask(campaign, 0, b"query", now=0.0, seconds=1.0)
        writers, stop = (
            [Writer(place.store.engine, ProcessStatus()) for _ in range(2)],
            threading.Event(),
        )
        acknowledged, refused = Counter[int](), Counter[int]()

        def send(i: int) -> None:
            while not stop.is_set():
                batch = Packed(os.urandom(32), 1, holding(b"x" * 100))
                code = writers[i % 2].put(Submission(campaign, 0, 1, [batch])).result().code
                (acknowledged if code == wire.Code.OK else refused)[i] += 1

        threads = [threading.Thread(target=send, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        eventually(lambda: sum(acknowledged.values()) > 50)
        place.store.close_round(campaign, 0, "deadline", now=1.0)
        stored = views.stored_batches(place.store.engine, campaign)
        eventually(lambda: sum(refused.values()) > 20)
        stop.set()
        for thread in threads:
            thread.join()
        for writer in writers:
            writer.close()
        assert (
            views.stored_batches(place.store.engine, campaign)
            == stored
            == sum(acknowledged.values())
        )
        assert sum(part.reports for part in views.progress(place.store.engine, campaign)) == stored
        assert place.store.turnout(campaign, 0) == (0, 1, stored)
    finally:
        place.close()


def test_an_owner_that_goes_away_stops_nobody(place: Place) -> None:
    """A call that is cancelled while its batch is on its way to disk: the batch is written, and so
    are those of others."""
    campaign = place.campaign(plan_now())
    place.enrol("owner")
    place.store.ask(campaign, 0, b"query", now=0.0, seconds=1.0)
    writer = Writer(place.store.engine, ProcessStatus())
    for i in range(20):
        writer.put(
            Submission(campaign, 0, 1, [Packed(bytes([i]) * 32, 1, holding(b"batch"))])
        ).cancel()
    assert (
        writer.put(Submission(campaign, 0, 1, [Packed(b"x" * 32, 1, holding(b"batch"))]))
        .result(timeout=30)
        .code
        == wire.Code.OK
    )
    writer.close()
    assert views.stored_batches(place.store.engine, campaign) == 21


@pytest.mark.parametrize("kind", DATABASES)
def test_migrations_make_the_tables_that_the_code_describes(
    kind: str, database: Callable[[str], str], tmp_path: Path
) -> None:
    """No difference between the versions run in order and the schema, in either database; the
    version that a process looks for is the last of them."""
    place = Place(tmp_path / "aggregator", database(kind))
    with place.store.engine.connect() as db:
        migrated = MigrationContext.configure(db)
        assert compare_metadata(migrated, metadata) == []
        assert migrated.get_current_revision() == latest_version()
    place.close()


@needs_postgres
def test_no_path_of_the_page_fails(database: Callable[[str], str], tmp_path: Path) -> None:
    """A character that PostgreSQL does not take, or a file system: there is no such page, and the
    log has nothing to say."""
    place = Place(tmp_path / "aggregator", database("postgres"))
    try:
        server = place.serve("--http", "0")
        address = next(event["address"] for event in server.events() if event["event"] == "page")
        for path in (
            "campaigns/%00",
            "campaigns/%00/card",
            "campaigns/a%00b/events",
            "campaigns/%ff%fe/plan.bin",
            "static/%00",
            f"static/{'x' * 5_000}",
            "%00",
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{address}{path}", timeout=30)
            with refused.value:
                assert refused.value.code == 404, path
        assert not [event for event in server.events() if event["level"] != "info"]
    finally:
        place.close()


@pytest.mark.parametrize("kind", DATABASES)
def test_a_database_of_a_later_version_is_refused_in_a_line(
    kind: str, database: Callable[[str], str], tmp_path: Path
) -> None:
    """Exit code 2, a line that says so, and the database stays as it is."""
    place = Place(tmp_path / "aggregator", database(kind))
    try:
        with place.store.engine.begin() as db:
            db.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        ran = subprocess.run(
            [
                sys.executable,
                "-m",
                "confide.aggregator.cli.server",
                "campaign",
                "status",
                "--db",
                place.url,
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
        assert "probably a later one" in ran.stderr
        with place.store.engine.connect() as db:
            assert db.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == "9999"
    finally:
        place.close()
