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
from aggregator.keys import read_key
from protocol.campaign import Plan, sign_plan
from protocol.certificate import Certificate
from protocol.channels import auto
from protocol.embedded import deal, predictions
from protocol.scores import SCORES, all_scores, true_scores
from protocol.simulated import CONTENT, EMBEDDED_MODEL, SIMULATION_KEY

log = logging.getLogger("flwr")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run every campaign, print one row each, and write certificates where the configuration says."""
    config = context.run_config
    key = read_key(Path(str(config["key-file"]))) if config["key-file"] else SIMULATION_KEY
    plans = {name: make_plan(name, config, run=context.run_id) for name in str(config["campaigns"]).split()}
    present = answering(sorted(grid.get_node_ids()), float(config["dropout"]), int(config["seed"]))
    log.info("confide: %d nodes answer", len(present))
    for name, plan in plans.items():
        signed = sign_plan(plan, key)
        outcome = run_campaign(plan, Asking(grid, present, signed, float(config["timeout"])))
        row = {"campaign": name, "plan": signed.hex(), **asdict(outcome.certificate), "received": outcome.received}
        if key is SIMULATION_KEY:
            row |= measure(plan, outcome.certificate, seed=int(config["seed"]))
        log.info("confide: %s", describe(row))
        if config["output"]:
            path = Path(str(config["output"])) / f"{name.replace(':', '-')}.json"
            path.write_text(json.dumps(row, indent=2) + "\n")


def answering(nodes: list[int], dropout: float, seed: int) -> list[int]:
    """The nodes of a simulation that ever answer; all of them unless a dropout rate is set."""
    keeps = np.random.default_rng(max(seed, 0)).random(len(nodes)) >= dropout
    return [node for node, kept in zip(nodes, keeps, strict=True) if kept]


def measure(plan: Plan, certificate: Certificate, *, seed: int) -> dict[str, float]:
    """Coverage and set size of a simulated campaign on the embedded records that nobody was dealt."""
    probs, labels = predictions()
    _, rest = deal(labels, owners=1, records=plan.expected_records, concentration=0, seed=max(seed, 0))
    u = np.random.default_rng(max(seed, 0)).random(len(rest))
    threshold = np.float64(certificate.threshold)
    own = true_scores(SCORES[plan.score], probs[rest], labels[rest], u=u)
    every = all_scores(SCORES[plan.score], probs[rest], u=u)
    return {"coverage": float(np.mean(own <= threshold)), "mean_size": float((every <= threshold).sum(axis=1).mean())}


def describe(row: dict[str, Any]) -> str:
    """One line on a campaign."""
    tested = f", test coverage {row['coverage']:.4f}, mean set size {row['mean_size']:.2f}" if "coverage" in row else ""
    return (
        f"{row['campaign']}: threshold {row['threshold']:.6f}, coverage at least {row['level']:.3f} ({row['kind']}), "
        f"epsilon {row['epsilon']:.4f}, {row['n']} reports{tested}"
        + (f"; trivial: {row['reason']}" if row["threshold"] >= 1 else "")
    )


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
