import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator.campaigns import run_campaign
from client.home import Home
from client.pinned import REFUSED_COMMANDS, bundle_hash, pin
from client.records import read_records
from client.respond import Respondent
from protocol.campaign import open_plan
from protocol.embedded import deal, predictions
from protocol.errors import BadInput
from protocol.sampling import os_entropy
from simulation.federation import QUIET, free_port, stop

ROOT = Path(__file__).parent.parent
TOOLS = Path(sys.executable).parent
NODES, RECORDS = 3, 3_000


def write_tls(folder: Path) -> None:
    """A certificate authority and a server certificate for this machine, for the length of a test."""
    now = datetime.now(UTC)

    def certificate(name: str, key: Any, issuer: str, signer: Any, extension: x509.ExtensionType) -> bytes:
        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

        builder = x509.CertificateBuilder(named(issuer), named(name), key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
        signed = builder.add_extension(extension, critical=False).sign(signer, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    (folder / "ca.pem").write_bytes(
        certificate("ca", authority, "ca", authority, x509.BasicConstraints(ca=True, path_length=None))
    )
    (folder / "server.pem").write_bytes(certificate("server", server, "ca", authority, names))
    (folder / "server.key").write_bytes(private_pem(server, serialization.PrivateFormat.PKCS8))


def private_pem(key: Any, form: serialization.PrivateFormat) -> bytes:
    return bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def write_owner(folder: Path, number: int, share: Any, aggregator: bytes) -> None:
    """An owner's folder and records, and the key its node logs in with."""
    home = Home(folder / f"home{number}")
    home.create()
    policy = home.policy_file.read_text()
    for old, new in (
        ("aggregators = []", f'aggregators = ["{aggregator.hex()}"]'),
        ('methods = ["bits"]', 'methods = ["bits", "labels"]'),
        ("features_may_leave = false", "features_may_leave = true"),
    ):
        policy = policy.replace(old, new)
    home.policy_file.write_text(policy)
    probs, labels = predictions()
    np.savez(folder / f"records{number}.npz", probs=probs[share], labels=labels[share], ids=share)
    node = ec.generate_private_key(ec.SECP384R1())
    (folder / f"node{number}").write_bytes(private_pem(node, serialization.PrivateFormat.OpenSSH))
    public = node.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"node{number}.pub").write_bytes(public)


def environment(home: Path) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    return os.environ | QUIET | {"FLWR_HOME": str(home), "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"}


def flwr(folder: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        ["flwr", *arguments, "--format", "json"], env=environment(folder / "cli"), cwd=ROOT, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    assert found["success"], done.stdout + done.stderr
    return found


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A SuperLink over TLS with node authentication, three SuperNodes, and a run of one bits and one labels campaign."""
    folder = tmp_path_factory.mktemp("deployment")
    write_tls(folder)
    key = Ed25519PrivateKey.generate()
    (folder / "aggregator.key").write_bytes(key.private_bytes_raw())
    _, labels = predictions()
    shares, _ = deal(labels, owners=NODES, records=RECORDS, concentration=0, seed=1)
    for number, share in enumerate(shares):
        write_owner(folder, number, share, key.public_key().public_bytes_raw())
    pin(folder / "launchers", [bundle_hash(ROOT)])
    port = free_port()
    (folder / "out").mkdir()
    (folder / "cli").mkdir()
    own = f'[superlink.own]\naddress = "127.0.0.1:{port}"\nroot-certificates = "{folder}/ca.pem"\n'
    (folder / "cli" / "config.toml").write_text(f'[superlink]\ndefault = "own"\n\n{own}')
    superlink = [
        "flower-superlink",
        "--ssl-ca-certfile",
        "ca.pem",
        "--ssl-certfile",
        "server.pem",
        "--ssl-keyfile",
        "server.key",
    ]
    superlink += ["--enable-supernode-auth", "--database", "state.db", "--host", "127.0.0.1", "--port", str(port)]
    commands = [superlink]
    for number in range(NODES):
        node = ["flower-supernode", "--superlink", f"127.0.0.1:{port}", "--root-certificates", "ca.pem"]
        node += ["--auth-supernode-private-key", f"node{number}", "--host", "127.0.0.1", "--port", str(free_port())]
        node += ["--node-config", f'home="{folder}/home{number}" records="{folder}/records{number}.npz"']
        commands.append(node)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for place, command in enumerate(commands):
            with (folder / f"{place}.log").open("wb") as log:
                env = environment(folder / f"flwr{place}")
                if place:
                    env["PATH"] = f"{folder / 'launchers'}{os.pathsep}{env['PATH']}"
                running.append(subprocess.Popen(
                    command, cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                ))  # fmt: skip
            if place == 0:
                wait_for(lambda: b"Uvicorn running" in (folder / "0.log").read_bytes())
                for number in range(NODES):
                    flwr(folder, "supernode", "register", str(folder / f"node{number}.pub"), "own")
        nodes_ready = lambda: all(b"SuperNode ID" in (folder / f"{i + 1}.log").read_bytes() for i in range(NODES))  # noqa: E731
        wait_for(nodes_ready)
        assert run_to_end(folder, ROOT, "bits:certified labels:certified") == "finished:completed"
        yield folder
    finally:
        for process in reversed(running):
            stop(process)


def run_to_end(folder: Path, project: Path, campaigns: str) -> str:
    """Run a bundle of a project against the deployment, and return how the run ended."""
    config = (
        f'campaigns="{campaigns}" epsilon=2.0 records={RECORDS} timeout=120.0 '
        f'output="{folder}/out" key-file="{folder}/aggregator.key"'
    )
    run = flwr(folder, "run", str(project), "own", "--run-config", config)["run-id"]
    wait_for(lambda: status(folder, run).startswith("finished"), seconds=240)
    return status(folder, run)


def status(folder: Path, run: Any) -> str:
    return str(next(row["status"] for row in flwr(folder, "list", "own")["runs"] if str(row["run-id"]) == str(run)))


def wait_for(ready: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "not ready in time"
        time.sleep(0.5)


@pytest.mark.parametrize("name", ["bits-certified", "labels-certified"])
def test_supernodes_over_tls_give_the_threshold_of_their_own_ledgers(deployment: Path, name: str) -> None:
    """Records answered over Flower; asked again in process, the ledgers repeat themselves to the same threshold."""
    row = json.loads((deployment / "out" / f"{name}.json").read_text())
    # Labels ask everybody; bits may be done before the last stage.
    assert row["n"] == RECORDS or name.startswith("bits")
    assert set(row["received"]) == {"OK"}
    assert row["randomness"] == "operating system"
    signed = bytes.fromhex(row["plan"])
    homes = [Home(deployment / f"home{number}") for number in range(NODES)]
    plan, _ = open_plan(signed, trusted=homes[0].policy().aggregators, now=datetime.now(UTC))
    owners = [
        Respondent(
            records=read_records(deployment / f"records{number}.npz"), policy=home.policy(), ledger=home.ledger(),
            secret=home.secret(), entropy=os_entropy, now=lambda: datetime.now(UTC),
        )
        for number, home in enumerate(homes)
    ]  # fmt: skip
    again = run_campaign(plan, lambda query: [owner.answer(signed, query) for owner in owners])
    assert again.certificate.threshold == row["threshold"]
    assert again.received == row["received"]


def test_each_owner_has_spent_what_it_answered(deployment: Path) -> None:
    """Two campaigns at epsilon 2: every record has answered, none has spent more than 4, and what was spent was sent."""
    for number in range(NODES):
        ledger = Home(deployment / f"home{number}").ledger()
        assert ledger.spent_by_record() == (RECORDS // NODES, 4.0)
        assert [campaign.unanswered for campaign in ledger.campaigns()] == [0, 0]


def test_a_hostile_bundle_is_not_run(deployment: Path, tmp_path: Path) -> None:
    """A bundle whose client would send raw labels is refused by every pinned node, which says why; nothing is spent."""
    for name in ("aggregator", "client", "protocol", "simulation"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    settings = (ROOT / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(re.sub(r"fab-exclude = .*\n", "", settings))
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    hostile = tmp_path / "client" / "flower_app.py"
    hostile.write_text(hostile.read_text() + f"\nopen({str(tmp_path / 'stolen')!r}, 'w').write('raw labels')\n")
    before = [Home(deployment / f"home{number}").ledger().campaigns() for number in range(NODES)]
    assert run_to_end(deployment, tmp_path, "labels:certified") == "finished:failed"
    assert not (tmp_path / "stolen").exists()
    assert [Home(deployment / f"home{number}").ledger().campaigns() for number in range(NODES)] == before
    for number in range(NODES):
        assert (
            f"bundle {bundle_hash(tmp_path)} is not allowed by the data owner" in (deployment / f"{number + 1}.log").read_text()
        )


def test_launchers_of_other_tasks_refuse(tmp_path: Path) -> None:
    """Whatever else a node is asked to start, it does not; a hash that is none is not taken."""
    pin(tmp_path, ["0" * 64])
    for name in REFUSED_COMMANDS:
        done = subprocess.run([tmp_path / name], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
        assert done.returncode == 1
        assert "nothing but its own client app" in done.stderr
    with pytest.raises(BadInput, match="64 hexadecimal digits"):
        pin(tmp_path, ["short"])
    with pytest.raises(BadInput, match=r"no pyproject\.toml"):
        bundle_hash(tmp_path)
