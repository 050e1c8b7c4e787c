"""Flower's client side: every message is one query, answered by the owner's `Respondent`.

A node with `home` and `records` in its node configuration is a data owner. A node of a simulation
has a partition instead and holds a share of the embedded data set, or of the file that the run
configuration names.

An opened owner is kept between the messages of one process (`confide.client.owner.kept_owner`,
`confide.client.simulated.simulated_owner`). A SuperNode starts a process for every message, so
there each message reads the file of records again; the model is still run once, in the first round,
because the scores are kept on disk (`confide.client.records.score_cache`) and later processes find
them by a digest of the features.
"""

import logging
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from confide.client.home import Home
from confide.client.owner import kept_owner
from confide.client.respond import Respondent
from confide.client.simulated import simulated_owner
from confide.client.training.computing import AUTO, Computing
from confide.client.training.shown_log import show_training
from confide.protocol.plan import round_of
from confide.protocol.simulated.attendance import Attendance
from confide.protocol.simulated.settings import CONTENT
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import VERSION

log = logging.getLogger(__name__)

app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    """Answer a query; a failure leaves this machine as a code, never as a text."""
    try:
        asked: Any = message.content[CONTENT]
        hears, in_time = _heard(context, asked["query"])
        if not hears:
            return Message(RecordDict(), reply_to=message)
        owner = _respondent(context, asked["query"], asked.get("model"))
        reply = owner.answer(asked["plan"], asked["query"])
        if not in_time:
            # It was drawn and charged, and arrives when the round is over.
            return Message(RecordDict(), reply_to=message)
    except Exception:
        log.exception("a query could not be answered; only a code leaves this machine")
        reply = wire.Answer(version=VERSION, code=wire.Code.INTERNAL).SerializeToString()
    said: dict[str, Any] = {"answer": reply}
    if "partition-id" in context.node_config:
        # Flower draws new node ids in every run; a simulation measures its owners one by one.
        said["owner"] = int(context.node_config["partition-id"])
    return Message(RecordDict({CONTENT: ConfigRecord(said)}), reply_to=message)


def _heard(context: Context, query: bytes) -> tuple[bool, bool]:
    """Return whether this node hears of the round, and whether its answer comes in time.

    Only nodes of a simulation may not. The ServerApp cannot choose these: Flower draws new node ids
    in every run, so the choice would fall on other owners.
    """
    node = context.node_config
    if "home" in node:
        return True, True
    number, round_ = int(node["partition-id"]), round_of(query)
    attendance = Attendance.of(dict(context.run_config), owners=int(node["num-partitions"]))
    return not attendance.missing(round_)[number], not attendance.late(round_)[number]


def _respondent(context: Context, query: bytes, sent: bytes | None) -> Respondent:
    """Open the owner; `sent` is a model that came with the query and replaces the owner's file."""
    node, config = context.node_config, context.run_config
    if "home" in node:
        show_training()
        model = node.get("model")
        return kept_owner(
            Home(Path(str(node["home"]))),
            Path(str(node["records"])),
            Path(str(model)) if sent is None and model is not None else sent,
            computing=Computing(str(node.get("device", AUTO)), str(node.get("engine", AUTO))),
        )
    return simulated_owner(
        run=context.run_id,
        owner=int(node["partition-id"]),
        owners=int(node["num-partitions"]),
        config=dict(config),
        query=query,
        model=sent,
    )
