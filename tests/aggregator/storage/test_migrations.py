"""Databases that earlier versions made, with what is in them."""

import hashlib
from pathlib import Path

from sqlalchemy import text

from confide.aggregator.storage.database import connect, writing
from confide.aggregator.storage.store import Store
from confide.protocol.plan import sign_plan
from tests.support.owners.owners import KEY
from tests.support.servers.databases import at_version
from tests.support.servers.servers import Place, eventually, plan_now

SETTINGS = '{"round_seconds": 3600.0, "owners": 0, "enough": 0}'


def test_queries_of_an_earlier_version_are_found(tmp_path: Path) -> None:
    """An open round of a database of version 0005 keeps its query, under its digest, and a server
    of this version goes on with it."""
    (tmp_path / "aggregator").mkdir()
    url = f"sqlite:///{tmp_path / 'aggregator' / 'confide.sqlite'}"
    at_version(url, "0005")
    plan = plan_now(variant="one-shot")
    place = Place(tmp_path / "other")
    name = place.campaign(plan)
    server = place.serve()
    asked: bytes = eventually(lambda: place.store.rounds(name) and place.store.query(name, 0))
    server.kill()
    place.close()
    engine = connect(url)
    with writing(engine).begin() as db:
        db.execute(
            text(
                "INSERT INTO campaigns (id, signed_plan, settings, state, created, leased_until) "
                "VALUES (:id, :plan, :settings, 'open', 0, 0)"
            ),
            {"id": name, "plan": sign_plan(plan, KEY), "settings": SETTINGS},
        )
        db.execute(
            text(
                "INSERT INTO queries (campaign, round, query, opened, deadline, batches) "
                "VALUES (:id, 0, :query, 0, 1e12, 0)"
            ),
            {"id": name, "query": asked},
        )
    engine.dispose()
    place = Place(tmp_path / "aggregator")
    try:
        store: Store = place.store
        (found,) = store.rounds(name)
        assert found.digest == hashlib.sha256(asked).digest()
        assert store.queries(name) == [asked]
        server = place.serve()
        store.close(name, now=1.0)
        # The round is closed without a report, so the campaign fails and says why: nothing else.
        reason = eventually(lambda: store.campaign(name).reason)
        assert "0 reports arrived" in reason
        assert not [one for one in server.events() if one["event"] == "a campaign stands still"]
    finally:
        place.close()
