"""Flower's server side: drives the campaigns of the run configuration over the grid."""

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from aggregator.campaigns import run_campaign
from aggregator.cards import campaign_card
from aggregator.keys import read_key
from aggregator.summary import as_text, non_private, simulated
from protocol.campaign import Plan, sign_plan
from protocol.channels import auto
from protocol.simulated import CONTENT, EMBEDDED_MODEL, SIMULATION_KEY

log = logging.getLogger("flwr")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run every campaign, print them as a table, and write certificates where the configuration says."""
    config = context.run_config
    key = read_key(Path(str(config["key-file"]))) if config["key-file"] else SIMULATION_KEY
    plans = {name: make_plan(name, config, run=context.run_id) for name in str(config["campaigns"]).split()}
    present = answering(sorted(grid.get_node_ids()), float(config["dropout"]), int(config["seed"]))
    log.info("confide: %d nodes answer", len(present))
    simulation = key is SIMULATION_KEY
    given: dict[str, Any] = {"score": str(config["score"]), "records": int(config["records"]), "seed": int(config["seed"])}
    rows = [non_private(alpha=float(config["alpha"]), **given)] if simulation else []
    for name, plan in plans.items():
        signed = sign_plan(plan, key)
        outcome = run_campaign(plan, Asking(grid, present, signed, float(config["timeout"])))
        measured = simulated(outcome.certificate, **given) if simulation else {}
        card = campaign_card(plan, outcome, diagnostic=measured, issued=datetime.now(UTC)).sign(key)
        row = {"campaign": name, "plan": signed.hex(), **asdict(outcome.certificate), "received": outcome.received, **measured}
        rows.append(row)
        log.info("confide: %s is done", name)
        if config["output"]:
            file = Path(str(config["output"])) / name.replace(":", "-")
            file.with_suffix(".card.json").write_text(card.to_json())
            file.with_suffix(".json").write_text(json.dumps(row, indent=2) + "\n")
    log.info("confide:\n%s", as_text(rows))


def answering(nodes: list[int], dropout: float, seed: int) -> list[int]:
    """The nodes of a simulation that ever answer; all of them unless a dropout rate is set."""
    keeps = np.random.default_rng(max(seed, 0)).random(len(nodes)) >= dropout
    return [node for node, kept in zip(nodes, keeps, strict=True) if kept]


class Asking:
    """Sends a query to every node and yields the answers that come back before the timeout; the rest is missing."""

    def __init__(self, grid: Grid, nodes: list[int], plan: bytes, timeout: float) -> None:
        self._grid, self._nodes, self._plan, self._timeout = grid, nodes, plan, timeout

    def __call__(self, query: bytes) -> Iterator[bytes]:
        content = RecordDict({CONTENT: ConfigRecord({"plan": self._plan, "query": query})})
        messages = [Message(content=content, message_type="query", dst_node_id=node, ttl=self._timeout) for node in self._nodes]
        for reply in self._grid.send_and_receive(messages, timeout=self._timeout):
            yield read_reply(reply)


def read_reply(reply: Message) -> bytes:
    """The answer in a reply; nothing in one that carries an error, which is then counted as malformed."""
    if reply.has_error():
        log.warning("confide: node %d answers with an error: %s", reply.metadata.src_node_id, reply.error.reason)
        return b"\xff"
    record: Any = reply.content.get(CONTENT)
    found = record.get("answer") if record is not None else None
    return found if isinstance(found, bytes) else b"\xff"


def make_plan(name: str, config: Any, *, run: int) -> Plan:
    """The plan of one campaign, from the run configuration."""
    method, _, variant = name.partition(":")
    epsilon, labels = float(config["epsilon"]), int(config["labels"])
    channel = "bit"
    if method == "labels":
        wanted = str(config["channel"])
        published = variant.startswith("published")
        channel = wanted if wanted != "auto" else "k-rr" if published else auto(k=labels, epsilon=epsilon).name
    model = bytes.fromhex(str(config["model"])) if config["model"] else EMBEDDED_MODEL
    now = datetime.now(UTC).replace(microsecond=0)
    return Plan(
        campaign=f"{name} {run}", method=method, variant=variant, score=str(config["score"]), channel=channel, epsilon=epsilon,
        labels=labels, alpha=float(config["alpha"]), delta=float(config["delta"]), expected_records=int(config["records"]),
        minimum_reports=int(config["minimum-reports"]), model=model, issued=now - timedelta(minutes=5),
        expires=now + timedelta(days=30), max_corrupt=int(config["max-corrupt"]),
    )  # fmt: skip
