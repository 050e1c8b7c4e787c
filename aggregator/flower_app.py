"""Flower's server app: runs the campaigns of the run configuration over the grid."""

import json
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid, ServerApp
from threadpoolctl import threadpool_limits

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import run_campaign, run_training
from confide.aggregator.campaigns.plans import make_plan, valid_from
from confide.aggregator.campaigns.releases import Audited, Kept
from confide.aggregator.campaigns.summary import as_text, non_private, simulated, simulated_accuracy
from confide.aggregator.campaigns.training_result import (
    about_text,
    about_training,
    training_terms,
    weights_file,
)
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.keys import read_key
from confide.aggregator.procedures.central import Draw
from confide.protocol.cards.card import AUDITOR
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy, os_entropy
from confide.protocol.files import write_whole
from confide.protocol.plan import Plan, digest, sign_plan
from confide.protocol.simulated import ALWAYS, CONTENT, EMBEDDED_MODEL, SIMULATION_KEY

log = logging.getLogger("flwr")

# Flower's codes for a node that is gone or did not answer in time; whether one comes before the
# timeout is chance.
MISSING = (
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
)

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run every campaign, log a table of them, and write certificates to the output folder."""
    # A simulation starts Ray beside this thread by forks. OpenBLAS's threads do not survive a fork,
    # so the work given to them would never end.
    threadpool_limits(1, user_api="blas")
    config = dict(context.run_config)
    simulation = not config["key-file"]
    key = SIMULATION_KEY if simulation else read_key(Path(str(config["key-file"])))
    folder = output_folder(str(config["output"]))
    plans = make_plans(config, run=context.run_id)
    nodes = sorted(grid.get_node_ids())
    log.info("confide: %d nodes", len(nodes))
    given: dict[str, Any] = {
        "score": str(config["score"]),
        "records": int(config["records"]),
        "replacement": bool(config["replacement"]),
        "seed": int(config["seed"]),
    }
    rows = [non_private(alpha=float(config["alpha"]), **given)] if simulation else []
    for name, plan in plans.items():
        signed = sign_plan(plan, key)
        asking = Asking(grid, nodes, signed, float(config["timeout"]))
        if plan.terms.track is None:
            train(plan, asking, folder, given if simulation else None)
            continue
        draw = Audited(kept_draw(folder, plan, seed=given["seed"], run=context.run_id))
        outcome = run_campaign(plan, asking, draw=draw)
        measured = simulated(outcome.certificate, **given) if simulation else {}
        card = campaign_card(plan, outcome, diagnostic=measured, issued=datetime.now(UTC)).sign(key)
        row = {
            "campaign": name,
            "plan": signed.hex(),
            **asdict(outcome.certificate),
            "channel": outcome.certificate.mechanism,
            "received": outcome.received,
            **measured,
        }
        rows.append(row)
        log.info("confide: %s is done", name)
        if folder is not None:
            file = folder / name.replace(":", "-")
            file.with_suffix(".card.json").write_text(card.to_json())
            if draw.diagnostic:
                audit = replace(card, diagnostic=measured | draw.diagnostic, view=AUDITOR).sign(key)
                file.with_suffix(".auditor.json").write_text(audit.to_json())
            file.with_suffix(".json").write_text(json.dumps(row, indent=2) + "\n")
    log.info("confide:\n%s", as_text(rows))


def make_plans(config: dict[str, Any], *, run: int) -> dict[str, Plan]:
    """Make the plans of a run, by campaign.

    The plans of a seeded simulation contain neither its time nor its id, so that it repeats.
    """
    seeded = int(config["seed"]) >= 0
    if not config["key-file"]:
        config = config | {"model": config["model"] or EMBEDDED_MODEL.hex()}
    elif seeded:
        raise BadInput(
            f"seed is {config['seed']} with a key-file; seeds are for simulations, accepted is -1"
        )
    valid = ALWAYS if seeded else valid_from(datetime.now(UTC), days=30)
    names = str(config["campaigns"]).split()
    return {
        name: make_plan(name, config, title=name if seeded else f"{name} {run}", valid=valid)
        for name in names
    }


def output_folder(path: str) -> Path | None:
    """Create the output folder and check that it can be written, before anything is asked.

    Once owners were asked, their budgets are spent.
    """
    if not path:
        return None
    folder = Path(path)
    if not folder.is_absolute():
        raise BadInput(
            f"output is {path!r}; accepted is an absolute path: the app runs in a folder of "
            "Flower's"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadInput(
            f"output is {path!r}, where nothing can be written: {error.strerror}; accepted is a "
            "folder"
        ) from None
    return folder


def train(plan: Plan, asking: "Asking", folder: Path | None, given: dict[str, Any] | None) -> None:
    """Run a training, log what it cost, and write the weights and the plan's terms."""
    learned, received = run_training(plan, asking)
    about = about_training(plan, learned.owners, received)
    if given is not None:
        terms = training_terms(plan)
        about["accuracy"] = simulated_accuracy(terms, learned.weights, **given)
    log.info(
        "confide: %s",
        {name: value for name, value in about.items() if name not in ("terms", "owners")},
    )
    if folder is not None:
        write_whole(folder / "training-weights.npz", weights_file(plan, learned.weights))
        write_whole(folder / "training-federated-averaging.json", about_text(about))


def kept_draw(folder: Path | None, plan: Plan, *, seed: int, run: int) -> Draw:
    """Make a draw that, given a folder, stores its release there before anybody sees it.

    A stored release is not drawn again. Its file name contains the run, because plans of seeded
    simulations may be the same in several runs.
    """
    entropy = os_entropy if seed < 0 else SeededEntropy("release", seed)
    if folder is None:
        return lambda mechanism, histogram, rank: mechanism.release(histogram, rank, entropy)
    return Kept(folder / f"release-{run}-{digest(plan.to_bytes()).hex()}.json", entropy)


class Asking:
    """Sends a query to every node, and yields the answers that come back before the timeout.

    The answers of other nodes are missing.
    """

    def __init__(self, grid: Grid, nodes: list[int], plan: bytes, timeout: float) -> None:
        self._grid, self._nodes, self._plan, self._timeout = grid, nodes, plan, timeout

    def __call__(self, query: bytes) -> Iterator[Sent]:
        content = RecordDict({CONTENT: ConfigRecord({"plan": self._plan, "query": query})})
        messages = [
            Message(content=content, message_type="query", dst_node_id=node, ttl=self._timeout)
            for node in self._nodes
        ]
        for reply in self._grid.send_and_receive(messages, timeout=self._timeout):
            answer = read_reply(reply)
            if answer is not None:
                yield Sent(reply.metadata.src_node_id.to_bytes(8, "big"), answer)


def read_reply(reply: Message) -> bytes | None:
    """The answer in a reply, or None if Flower or the node says that there is none.

    If the node failed, the answer returned is malformed.
    """
    if reply.has_error():
        if reply.error.code in MISSING:
            return None
        log.warning(
            "confide: node %d answers with an error: %s",
            reply.metadata.src_node_id,
            reply.error.reason,
        )
        return b"\xff"
    if not reply.content:
        return None
    record: Any = reply.content.get(CONTENT)
    found = record.get("answer") if record is not None else None
    return found if isinstance(found, bytes) else b"\xff"
