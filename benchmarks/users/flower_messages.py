"""What a message to a data owner costs over Flower, next to one of an empty client app.

Run with the project's environment: `python benchmarks/users/flower_messages.py [--nodes 1000]
[--turns 8] [--json FILE]`. One run, one SuperLink and the same nodes: in every turn all nodes get
the same query four times. The first goes to a handler that returns a message without content, the
second to one that returns as many bytes as an answer has in the same kind of record (Flower moves
every record of a message by itself, so that alone costs), the third to one that also commits these
bytes, durably, to a SQLite file of the node, which is the least that a ledger does; the fourth to
the real client: policy, ledger, randomiser, wire. Ledgers of a simulation are not synced, so that
of the last two either may be the faster. Given are processor time of all processes of the
federation, and wall time. In the first turn owners are made: records are named, ledgers created; a
node's next query may reach another process, which makes the owner once more. The claim: a query
costs at most 1.5 times an empty client app.

Flower looks through all waiting messages for each node again and again while a round lasts, so what
a handler takes longer by the clock costs processor time elsewhere, too: look at the load.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from confide.simulation.defaults import APP
from confide.simulation.federation.harness import federation

APP_CODE = '''
import json
import os
import sqlite3
import time
from pathlib import Path

import psutil
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from threadpoolctl import threadpool_limits

from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.campaigns.planning.run_plans import Plans
from confide.aggregator.campaigns.planning.simulated_settings import simulated_settings
from confide.aggregator.flower_messages import Asking
from confide.client.flower_app import answer
from confide.protocol.plan import sign_plan
from confide.protocol.simulated.settings import SIMULATION_KEY

client = ClientApp()
server = ServerApp()
client.query()(answer)


@client.query("empty")
def empty(message, context):
    return Message(RecordDict(), reply_to=message)


@client.query("bytes")
def as_many_bytes(message, context):
    record = ConfigRecord({"answer": bytes(256)})
    return Message(RecordDict({"confide": record}), reply_to=message)


FILES = {}


@client.query("commit")
def committed(message, context):
    number = context.node_config["partition-id"]
    if number not in FILES:
        path = Path(os.environ["CONFIDE_RUN_FOLDER"], f"committed-{number}.sqlite")
        db = FILES[number] = sqlite3.connect(path, isolation_level=None, timeout=600)
        db.execute("PRAGMA synchronous = EXTRA")
        db.execute("CREATE TABLE IF NOT EXISTS answers (answer BLOB)")
    FILES[number].execute("INSERT INTO answers VALUES (?)", (bytes(256),))
    return as_many_bytes(message, context)


def members():
    found = []
    for one in psutil.process_iter():
        try:
            if one.environ().get("FLWR_HOME") == os.environ["FLWR_HOME"]:
                found.append(one)
        except psutil.Error:
            pass
    return found


class Timed:
    """The campaign's messages, and as many empty ones before them in every turn."""

    def __init__(self, grid, nodes, shared, turns):
        self.grid, self.nodes, self.shared, self.turns = grid, nodes, shared, turns
        self.asking = Asking(grid, nodes, shared, timeout=600)
        self.rows = []
        # All processes are there when the nodes have answered once.
        self.ask("empty", b"")
        self.members = members()

    def ask(self, kind, query):
        content = RecordDict({"confide": ConfigRecord({**self.shared, "query": query})})
        sent = [
            Message(content=content, message_type=f"query.{kind}", dst_node_id=node, ttl=600)
            for node in self.nodes
        ]
        assert len(list(self.asking._replies(sent))) == len(sent)

    def seconds(self, work):
        def spent():
            times = [one.cpu_times() for one in self.members if one.is_running()]
            return sum(one.user + one.system for one in times)

        processor, wall = spent(), time.monotonic()
        result = work()
        return result, spent() - processor, time.monotonic() - wall

    def __call__(self, query):
        if len(self.rows) >= self.turns:
            return []
        row = {}
        for kind in ("empty", "bytes", "commit"):
            _, processor, wall = self.seconds(lambda: self.ask(kind, query))
            row |= {f"{kind} processor": processor, f"{kind} wall": wall}
        found, processor, wall = self.seconds(lambda: list(self.asking(query)))
        row |= {"query processor": processor, "query wall": wall, "answers": len(found)}
        self.rows.append(row)
        return found


@server.main()
def main(grid, context):
    threadpool_limits(1, user_api="blas")
    nodes = sorted(grid.get_node_ids())
    config, _ = simulated_settings(dict(context.run_config), owners=len(nodes))
    plan = Plans(config, run=context.run_id, owners=len(nodes)).make("bits:certified")
    timed = Timed(grid, nodes, {"plan": sign_plan(plan, SIMULATION_KEY)}, int(config["periods"]))
    outcome = run_campaign(plan, timed)
    rows = {"rows": timed.rows, "received": outcome.received}
    Path(config["output"], "messages.json").write_text(json.dumps(rows))
'''


def measured(nodes: int, turns: int, folder: Path) -> dict[str, Any]:
    """The seconds of every turn of one run."""
    app = folder / "app"
    app.mkdir()
    (app / "messages_app.py").write_text(APP_CODE)
    lines = [
        line
        for line in APP.read_text().splitlines(keepends=True)
        if not line.startswith(("fab-exclude", "serverapp", "clientapp"))
    ]
    components = "[tool.flwr.app.components]\n"
    named = f'{components}serverapp = "messages_app:server"\nclientapp = "messages_app:client"\n'
    defaults = "[tool.flwr.app.config]\n"
    text = "".join(lines).replace(components, named).replace(defaults, f"{defaults}periods = 0\n")
    (app / "pyproject.toml").write_text(text)
    config = {
        "output": str(folder),
        "seed": -1,
        "minimum-reports": 0,
        "campaigns": "bits:certified",
    }
    with federation() as flower:
        flower.run(nodes=nodes, config=config | {"periods": turns}, tick=lambda: None, app=app)
    found: dict[str, Any] = json.loads((folder / "messages.json").read_text())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1_000, help="nodes (default 1,000)")
    parser.add_argument("--turns", type=int, default=8, help="rounds that are measured (default 8)")
    parser.add_argument("--json", type=Path, help="write the turns to this file")
    given = parser.parse_args()
    if given.nodes < 1 or given.turns < 2:
        parser.error(f"nodes {given.nodes}, turns {given.turns}; accepted are 1 node and 2 turns")
    with tempfile.TemporaryDirectory() as folder:
        found = measured(given.nodes, given.turns, Path(folder))
    rows = found["rows"]
    table = Table(title=f"a message at {given.nodes:,} nodes, milliseconds", title_justify="left")
    kinds = ("empty", "bytes", "commit", "query")
    times = ("processor", "wall")
    for name in ("turn", *(f"{kind}, {what}" for what in times for kind in kinds)):
        table.add_column(name, no_wrap=True, justify="right")
    each = 1e3 / given.nodes
    for turn, row in enumerate(rows):
        cells = (f"{each * row[f'{kind} {what}']:.2f}" for what in times for kind in kinds)
        table.add_row(f"{turn + 1}", *cells)
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    for what in times:
        for kind in kinds[:-1]:
            ratios = [row[f"query {what}"] / row[f"{kind} {what}"] for row in rows]
            print(
                f"{what}: a query is {ratios[0]:.2f} times '{kind}' in the first turn, "
                f"{median(ratios[1:]):.2f} later"
            )
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
