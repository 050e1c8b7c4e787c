"""Whether PostgreSQL can keep batches in partitions, one a campaign, with the present tables.

Run with the project's environment: `python benchmarks/laboratory/partitions.py`. On a real
PostgreSQL it tries to divide the table of batches as it is, says what refuses, changes what has to
be changed, and then stores batches of two campaigns through the code of the server: each batch
once, read again by another process, and taken away with its partition.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from sqlalchemy import Engine, func, select, text
from sqlalchemy.exc import DBAPIError

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.laboratory.scale_costs import PHONES, submission
from benchmarks.service.ingest import answers
from confide.aggregator.storage.database import writing
from confide.aggregator.storage.reports.deposit import store_all
from confide.aggregator.storage.reports.ids import StoredIds
from confide.aggregator.storage.schema import batches
from confide.protocol.methods.base import Query
from confide.protocol.plan import digest, read_query
from tests.support.servers.postgres import postgres
from tests.support.servers.servers import Place, eventually, plan_now

AS_IT_IS = "CREATE TABLE divided (LIKE batches INCLUDING ALL) PARTITION BY LIST (campaign)"
# The generated id stays, and is unique in a campaign instead of everywhere; the constraint by which
# a batch is stored once begins with the campaign already, as does that of owners' progress.
CHANGED = """
ALTER TABLE batches RENAME TO whole;
CREATE TABLE batches (LIKE whole INCLUDING DEFAULTS) PARTITION BY LIST (campaign);
ALTER TABLE batches ADD PRIMARY KEY (campaign, id);
ALTER TABLE batches ADD UNIQUE (campaign, round, owner, digest);
DROP TABLE whole CASCADE;
CREATE SEQUENCE IF NOT EXISTS batches_id_seq;
ALTER TABLE batches ALTER COLUMN id SET DEFAULT nextval('batches_id_seq')
"""


def attempted(engine: Engine, command: str) -> str:
    """What a command ends with: nothing, or what the database says."""
    try:
        with engine.begin() as db:
            db.execute(text(command))
    except DBAPIError as error:
        return str(error.orig).strip().partition("\n")[0]
    return "works"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, postgres(Path("/tmp")) as url:
        place = Place(Path(folder), url)
        try:
            run(place)
        finally:
            place.close()


def run(place: Place) -> None:
    engine, rng = place.store.engine, np.random.default_rng(1)
    print("as it is:", attempted(engine, AS_IT_IS))
    plans = [plan_now(PHONES, campaign=name) for name in ("one", "two")]
    campaigns = [place.campaign(plan) for plan in plans]
    place.enrol("phone")
    server = place.serve(insecure=True)
    asked = [eventually(lambda name=name: place.store.queries(name))[0] for name in campaigns]
    server.stop()
    with engine.begin() as db:
        for command in CHANGED.split(";"):
            db.execute(text(command))
        for name in campaigns:
            db.execute(
                text(f"CREATE TABLE of_{name} PARTITION OF batches FOR VALUES IN ('{name}')")
            )
    print("primary key (campaign, id):", attempted(engine, "SELECT 1 FROM batches"))
    for plan, name, query in zip(plans, campaigns, asked, strict=True):
        plan_digest = digest(plan.to_bytes())
        read: Query = read_query(query, plan=plan, plan_digest=plan_digest)[0]
        items = [submission(name, 1, one) for one in answers(plan_digest, 200, 1, rng, read)]
        known, others = StoredIds(), StoredIds()
        for _ in range(2):
            with writing(engine).begin() as db:
                results = store_all(db, items, known)
        with writing(engine).begin() as db:
            again = store_all(db, items, others)
        found = f"{sum(one.accepted for one in [*results, *again])} of 400 repeats stored"
        print(f"campaign {name}: {counted(engine)} batches stored in all, {found}")
    print("last id, over all partitions:", plan_of(engine, select(func.max(batches.c.id))))
    attempted(engine, f"DROP TABLE of_{campaigns[0]}")
    print("without the partition of the first campaign:", counted(engine), "batches")


def counted(engine: Engine) -> int:
    with engine.connect() as db:
        return int(db.execute(select(func.count()).select_from(batches)).scalar_one())


def plan_of(engine: Engine, query: object) -> str:
    """How the database looks a query up."""
    with engine.connect() as db:
        lines = db.execute(text(f"EXPLAIN {query}")).scalars().all()
    return "every row" if any("Seq Scan" in line for line in lines) else "an index"


if __name__ == "__main__":
    main()
