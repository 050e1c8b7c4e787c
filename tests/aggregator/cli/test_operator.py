"""The operator's commands: a campaign's life, servers that must not start, and secrets."""

import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.keys import SIGNING_KEY, create_keys
from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.storage import views
from confide.aggregator.storage.reports.submissions import Packed, Submission
from confide.aggregator.storage.reports.writer import Writer
from confide.client.transport.grpc_client import Aggregator
from confide.client.transport.retry import Patience
from confide.protocol.cards.card import parse_card
from confide.protocol.wire import wire_pb2 as wire
from tests.support.owners.hostile import Wire
from tests.support.owners.owners import PUBLIC as PUBLIC_KEY
from tests.support.owners.owners import records as owner_records
from tests.support.owners.owners import scored
from tests.support.servers.operating import said
from tests.support.servers.servers import Place, aggregator, client, eventually, holding, plan_now


def test_the_life_of_a_campaign_on_the_command_line(place: Place, tmp_path: Path) -> None:
    """create, open, contribute, close, publish, export, purge, each as a command; wrong order and
    wrong input exit with 2."""
    home, records = tmp_path / "home", tmp_path / "records.npz"
    data = owner_records(2_000, 1)
    np.savez(records, probs=scored(data), labels=data.truth, ids=np.arange(2_000))
    assert client("init", "--home", home)[0] == 0
    assert client("allow", "aggregator", PUBLIC_KEY.hex(), "--home", home, "--yes")[0] == 0
    assert client("allow", "model", "00" * 32, "--home", home, "--yes")[0] == 0
    text = (home / "policy.toml").read_text()
    (tmp_path / "campaign.toml").write_text(
        f'campaign = "bits:one-shot"\nlabels = 5\nmodel = "{"00" * 32}"\nrecords = 2000\n'
    )
    key, db = ("--key", place.keys / SIGNING_KEY), ("--db", place.url)
    assert aggregator("campaign", "create", *key, *db) == (2, "")
    code, made = aggregator(
        "campaign",
        "create",
        *key,
        *db,
        "--file",
        tmp_path / "campaign.toml",
        "--round-seconds",
        "600",
    )
    assert code == 0
    campaign = made.strip()
    assert aggregator("campaign", "publish", campaign, *db)[0] == 2
    (tmp_path / "token").write_text(aggregator("owner", "add", "me", *db)[1])
    own = tmp_path / "certificate"
    assert aggregator("owner", "certificate", "me", "--keys", place.keys, "--out", own)[0] == 0
    server = place.serve("--client-ca", str(place.keys / "owners.pem"))
    part = (
        "contribute",
        "--aggregator",
        f"127.0.0.1:{server.port}",
        "--campaign",
        campaign,
        "--records",
        records,
        "--home",
        home,
        "--ca",
        place.keys / "ca.pem",
        "--cert",
        own / "owner.pem",
        "--key",
        own / "owner.key",
        "--token-file",
        tmp_path / "token",
        "--once",
        "--patience",
        "5",
    )
    assert aggregator("campaign", "open", campaign[:6], *db)[0] == 0
    eventually(lambda: place.store.rounds(campaign))
    time.sleep(0.5)
    (home / "policy.toml").write_text(text.replace('methods = ["bits"]', "methods = []"))
    code, said = client(*part, "--watch")
    assert (code, "0 reports" in said, "its method is not among `methods`" in said) == (
        1,
        True,
        True,
    ), said
    assert views.received(place.store.engine, campaign) == {"METHOD_NOT_ALLOWED": 1}
    (home / "policy.toml").write_text(text)
    code, said = client(*part)
    assert (code, "2000 reports" in said) == (0, True), said
    assert client(*part, "--aggregator", "127.0.0.1:1", "--patience", "0.1")[0] == 1
    assert client(*part, "--insecure-loopback", "--aggregator", "192.0.2.1:5")[0] == 2
    assert "2000 reports of 1 owners" in aggregator("campaign", "status", *db)[1]
    assert aggregator("campaign", "purge", campaign, *db)[0] == 2
    assert aggregator("campaign", "close", campaign, *db)[0] == 0
    eventually(lambda: place.store.campaign(campaign).state == "calibrated")
    token, pair = (
        (tmp_path / "token").read_text().strip(),
        [(own / file).read_bytes() for file in ("owner.key", "owner.pem")],
    )
    remote = Aggregator(
        server.access(token, key=pair[0], certificate=pair[1]), campaign, patience=Patience(5)
    )
    assert remote.card() is None
    assert aggregator("campaign", "publish", campaign, *db)[0] == 0
    assert aggregator("campaign", "export", campaign, tmp_path / "out", *db)[0] == 0
    assert aggregator("campaign", "purge", campaign, *db) == (0, "1 batches deleted\n")
    card = eventually(remote.card)
    assert card == (tmp_path / "out/card.json").read_text()
    assert parse_card(card).formal["certificate"]["n"] == 2_000
    assert views.stored_batches(place.store.engine, campaign) == 0
    assert aggregator("owner", "remove", "me", *db)[0] == 0
    eventually(lambda: Wire(server, campaign, token, tuple(pair)).submit() == "UNAUTHENTICATED")


@pytest.mark.parametrize(
    "options",
    [
        ("--insecure-loopback", "--listen", "0.0.0.0:0"),
        ("--insecure-loopback", "--listen", "confide.example:8443"),
        ("--listen", "127.0.0.1:0"),
        ("--insecure-loopback", "--listen", "nowhere"),
        ("--insecure-loopback", "--db", "/no/such/folder/x.sqlite"),
        ("--insecure-loopback", "--rate", "0"),
        ("--insecure-loopback", "--byte-rate", "0"),
        ("--insecure-loopback", "--message-bytes", "100000"),
    ],
)
def test_a_server_that_would_be_unsafe_or_useless_does_not_start(
    options: tuple[str, ...], place: Place
) -> None:
    """Without TLS on an address others can reach, without certificates, with a database that cannot
    be: exit code 2."""
    assert aggregator("serve", "--key", place.keys / SIGNING_KEY, *options)[0] == 2


def test_a_certificate_that_cannot_be_used_is_told_from_an_address(
    place: Place, tmp_path: Path
) -> None:
    """What is no certificate, no key, another's key, or no authority is named with its file before
    anything listens."""
    create_keys(tmp_path / "other", address="127.0.0.1", now=datetime.now(UTC))
    junk = tmp_path / "junk.pem"
    junk.write_text("-----BEGIN CERTIFICATE-----\nnot base64\n-----END CERTIFICATE-----\n")
    cert, key = place.keys / "server.pem", place.keys / "server.key"

    def serve(cert: Path, key: Path, *more: Any) -> str:
        code, complaint = said(
            "serve",
            "--key",
            place.keys / SIGNING_KEY,
            "--db",
            place.url,
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            cert,
            "--tls-key",
            key,
            *more,
        )
        assert (code, "listen" in complaint) == (2, False)
        return complaint

    assert f"{junk} is no certificate" in serve(junk, key)
    assert f"{key} is no certificate" in serve(key, key)
    assert f"{cert} is no private key" in serve(cert, cert)
    assert "does not belong to the certificate" in serve(cert, tmp_path / "other/server.key")
    assert f"{junk} is no certificate" in serve(cert, key, "--client-ca", junk)
    assert "No such file" in serve(cert, tmp_path / "missing.key")


@pytest.mark.parametrize("port", ["99999", "65536", "٣", "-1", "", "1" * 5000])
def test_a_port_that_is_none_is_refused(port: str, place: Place) -> None:
    """Instead of one that happens to have the same last bits."""
    code, complaint = said(
        "serve",
        "--key",
        place.keys / SIGNING_KEY,
        "--insecure-loopback",
        "--listen",
        f"127.0.0.1:{port}",
    )
    assert code == 2
    assert "--listen is" in complaint


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:SECRET@host/db",
        "unheard://me:SECRET@",
        "sqlite://me:SECRET@host/no/such/folder",
        "postgresql://me:SECRET@127.0.0.1:1/db",
        "postgresql://me:SECRET@127.0.0.1:port/db",
        "postgresql://me:SECRET@[::1/db",
        "postgresql://me:a@SECRET@127.0.0.1:1/db",
        "postgresql://me:a/SECRET@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?password=SECRET",
        "postgresql://me@127.0.0.1:1/db?password=a@SECRET",
        "postgresql+unheard://me:SECRET@127.0.0.1/db",
    ],
)
def test_a_password_is_in_no_message(url: str) -> None:
    """Whatever is wrong with a database's URL: one line, exit code 2, and no password in it."""
    code, complaint = said("db", "upgrade", "--db", url)
    assert (code, complaint.count("\n")) == (2, 1), complaint
    assert "SECRET" not in complaint


def test_the_database_is_for_its_owner_alone(place: Place) -> None:
    """The file and those beside it are readable for nobody else; one that is there keeps the mode
    it was given."""
    place.campaign(plan_now())
    files = sorted(place.folder.glob("confide.sqlite*"))
    assert [file.name for file in files] == [
        "confide.sqlite",
        "confide.sqlite-shm",
        "confide.sqlite-wal",
    ]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    files[0].chmod(0o640)
    assert said("campaign", "status", "--db", place.url)[0] == 0
    assert files[0].stat().st_mode & 0o777 == 0o640


def test_what_is_purged_is_in_no_file(place: Place) -> None:
    """Neither in the database nor in its log, while others use it; a second purge does not move the
    moment of the first."""
    campaign, secret = place.campaign(plan_now()), b"how it was reported"
    place.enrol("owner")
    place.store.ask(campaign, 0, b"query", now=0.0, seconds=1.0)
    writer = Writer(place.store.engine, ProcessStatus())
    batches = [
        Packed(bytes([i]) * 16, 1, holding((secret + bytes([i])) * 5_000)) for i in range(20)
    ]
    assert writer.put(Submission(campaign, 0, 1, batches)).result().code == wire.Code.OK

    def found() -> bool:
        return any(secret in file.read_bytes() for file in place.folder.glob("confide.sqlite*"))

    assert found()
    place.store.fail(campaign, "a reason", now=time.time())
    stop = threading.Event()
    readers = [threading.Thread(target=_read_until, args=(place, campaign, stop)) for _ in range(2)]
    for reader in readers:
        reader.start()
    assert said("campaign", "purge", campaign, "--db", place.url) == (0, "")
    assert not found()
    stop.set()
    for reader in readers:
        reader.join()
    (before,), _ = views.overviews(place.store.engine)
    assert said("campaign", "purge", campaign, "--db", place.url) == (0, "")
    (after,), _ = views.overviews(place.store.engine)
    assert before.purged is not None
    assert after.purged == before.purged
    writer.close()


def _read_until(place: Place, campaign: str, stop: threading.Event) -> None:
    while not stop.wait(0.01):
        views.stored_batches(place.store.engine, campaign)
