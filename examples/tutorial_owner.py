"""Tutorial: an owner's first campaign, over a real server, from the first command to a prediction.

Lines that begin with $ are what the operator and the owner type.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np

from confide.protocol.simulated.embedded import embedded_model, owned

BIN, PORT = Path(sys.executable).parent, sys.argv[1] if len(sys.argv) > 1 else "8443"
AT = f"--aggregator 127.0.0.1:{PORT} --insecure-loopback --token-file token"
CAMPAIGN = """campaign = "bits:certified"
title = "letters"
labels = 26
records = 8000
epsilon = 2.0
owners = 1
model-file = "model.onnx"
"""
KNOWN = os.environ | {"CONFIDE_HOME": "owner", "CONFIDE_DB": "campaigns.sqlite"}


def run(command: str, *, lines: int = 1) -> str:
    """Run a command, print it with the last lines that it says, and return its last word."""
    print(f"$ {command}", flush=True)
    name, *words = shlex.split(command)
    said = subprocess.check_output([BIN / name, *words], text=True, env=KNOWN).strip()
    print("\n".join(f"    {line}" for line in said.splitlines()[-lines:]), flush=True)
    return said.split()[-1] if said else ""


def main() -> None:
    features, labels = owned()
    Path("model.onnx").write_bytes(embedded_model())
    np.savez("records.npz", ids=np.arange(8000), features=features[:8000], labels=labels[:8000])
    np.savez("new.npz", features=features[8000:9000], labels=labels[8000:9000])
    key = run("confide-aggregator init keys")
    Path("token").write_text(run("confide-aggregator owner add clinic"))
    Path("campaign.toml").write_text(CAMPAIGN)
    make = "confide-aggregator campaign"
    campaign = run(f"{make} create --key keys/aggregator.key --file campaign.toml")
    run(f"{make} open {campaign}")
    serve = f"serve --key keys/aggregator.key --insecure-loopback --listen 127.0.0.1:{PORT}"
    command, quiet = [BIN / "confide-aggregator", *serve.split()], subprocess.DEVNULL
    with subprocess.Popen(command, env=KNOWN, stderr=quiet) as server:
        run("confide-client init")
        run(f"confide-client allow aggregator {key} --yes")
        run("confide-client allow model model.onnx --yes")
        of = f"--campaign {campaign}"
        run(f"confide-client plan {AT} {of} --out plan.bin --patience 60")
        run("confide-client explain plan.bin", lines=40)
        run(f"confide-client contribute {AT} {of} --records records.npz --model model.onnx")
        run(f"{make} publish {campaign}")
        run(f"confide-client card {AT} {of}", lines=2)
        server.terminate()
    new = f"--key {key} --data new.npz --model model.onnx --out sets.csv --explain 1"
    run(f"confide predict --card card.json {new}", lines=9)


if __name__ == "__main__":
    main()
