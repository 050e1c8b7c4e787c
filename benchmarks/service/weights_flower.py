"""Weights through a real SuperLink and SuperNode, for `weights.py`.

An app of two files is run on a deployment as docs/deployment.md starts it, over TLS, with a node
that runs what it is sent. The server side sends as many bytes as a query of weights has, and the
node sends as many back, in the records in which Confide's apps send theirs; nothing is trained. In
turns with it the server side sends them to the echo service, and a message of 16 bytes to the node:
for every message a SuperNode starts a process, and that alone takes seconds.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.federations.chain_supernodes import LONGEST, deployed
from confide.client.home import Home
from confide.protocol.simulated.settings import CONTENT
from confide.protocol.wire.service import PIECE_BYTES
from tests.support.programs.deployments import flwr, outcome

PROJECT = """
[project]
name = "weights"
version = "0.1.0"
dependencies = []

[tool.flwr.app]
publisher = "confide"

[tool.flwr.app.components]
serverapp = "weights_app:server"
clientapp = "weights_app:client"

[tool.flwr.app.config]
sizes = ""
turns = 1
echo = 0
output = ""
"""
APP = f"""
import json
import os
import time
from pathlib import Path

import grpc
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()


@client.query()
def answer(message, context):
    found = message.content["{CONTENT}"]["query"]
    return Message(RecordDict({{"{CONTENT}": ConfigRecord({{"answer": found}})}}), reply_to=message)


def through_flower(grid, data):
    (node,) = grid.get_node_ids()
    content = RecordDict({{"{CONTENT}": ConfigRecord({{"query": data}})}})
    message = Message(content=content, message_type="query", dst_node_id=node, ttl=600)
    (reply,) = grid.send_and_receive([message], timeout=600)
    assert reply.content["{CONTENT}"]["answer"] == data


def echoed(channel, data):
    pieces = [data[start : start + {PIECE_BYTES}] for start in range(0, len(data), {PIECE_BYTES})]
    call = channel.stream_stream("/echo/Echo")
    assert sum(1 for _ in call(iter(pieces))) == len(pieces)


def seconds(work):
    began = time.monotonic()
    work()
    return time.monotonic() - began


@server.main()
def main(grid, context):
    config = context.run_config
    channel = grpc.insecure_channel("127.0.0.1:" + str(config["echo"]))
    found = {{}}
    for size in config["sizes"].split():
        data, rows = os.urandom(4 * int(size)), []
        for _ in range(config["turns"] + 1):
            rows.append(
                {{
                    "echo": seconds(lambda: echoed(channel, data + data)),
                    "empty": seconds(lambda: through_flower(grid, bytes(16))),
                    "flower": seconds(lambda: through_flower(grid, data)),
                }}
            )
        # The first turn only warms up.
        found[size] = rows[1:]
    Path(config["output"]).write_text(json.dumps(found))
"""


def measure_flower(
    folder: Path, sizes: list[int], *, turns: int, echo: int
) -> list[dict[str, Any]]:
    """The rows of Flower, by number of weights, next to the echo service at this port."""
    app = folder / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(PROJECT)
    (app / "weights_app.py").write_text(APP)

    def prepare(_: bytes) -> int:
        Home(folder / "home0").create()
        np.savez(folder / "records0.npz", label=np.zeros(1))
        return 1

    given = {
        "sizes": " ".join(map(str, sizes)),
        "turns": turns,
        "echo": echo,
        "output": str(folder / "seconds.json"),
    }
    config = " ".join(f"{name}={json.dumps(value)}" for name, value in given.items())
    with deployed(folder, prepare):
        run = flwr(folder, "run", str(app), "own", "--run-config", config)["run-id"]
        ended = outcome(folder, run, seconds=LONGEST)
    assert ended == "finished:completed", (folder / "superlink.log").read_text()[-2000:]
    found = json.loads((folder / "seconds.json").read_text())
    return [_row(size, what, found[str(size)]) for size in sizes for what in ("empty", "flower")]


def _row(size: int, what: str, turns: list[dict[str, float]]) -> dict[str, Any]:
    own, echo = ([turn[name] for turn in turns] for name in (what, "echo"))
    ratios = np.divide(own, echo)
    return {
        "weights": size,
        "what": "SuperNode, 16 bytes" if what == "empty" else "SuperNode",
        "bytes": 32 if what == "empty" else 2 * 4 * size,
        "seconds": round(float(np.median(own)), 4),
        "echo, seconds": round(float(np.median(echo)), 4),
        "of echo": round(float(np.median(ratios)), 2),
        "from": round(float(ratios.min()), 2),
        "to": round(float(ratios.max()), 2),
    }
