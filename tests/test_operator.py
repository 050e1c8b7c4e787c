import math
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aggregator import views
from aggregator.cli import app
from aggregator.deposit import Packed, Parcel
from aggregator.keys import SIGNING_KEY, create_keys
from aggregator.store import Settings
from aggregator.vitals import Vitals
from aggregator.writer import Writer
from protocol import wire_pb2 as wire
from protocol.errors import BadInput
from tests.servers import Place, plan_now

GOOD = {"campaign": '"bits:one-shot"', "labels": "5", "model": f'"{"00" * 32}"', "records": "2000"}


def said(*arguments: Any) -> tuple[int, str]:
    """The exit code of a command and what it complains of; a traceback is no answer."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stderr


@pytest.fixture
def place(tmp_path: Path) -> Any:
    made = Place(tmp_path / "aggregator")
    yield made
    made.close()


def create(place: Place, **settings: str) -> tuple[int, str]:
    """`campaign create` with a file of these settings as TOML."""
    named = {name.replace("_", "-"): value for name, value in (GOOD | settings).items()}
    file = place.folder / "campaign.toml"
    file.write_text("".join(f"{name} = {value}\n" for name, value in named.items()))
    return said("campaign", "create", "--key", place.keys / SIGNING_KEY, "--db", place.url, "--file", file)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("round-seconds", '"86400"'), ("round-seconds", "inf"), ("round-seconds", "nan"), ("round-seconds", "1e12"),
        ("round-seconds", "0"), ("owners", '"x"'), ("owners", "1.5"), ("owners", "-1"), ("minimum-owners", "0"),
        ("enough", "true"), ("enough", "1e3"), ("labels", "2.5"), ("labels", "1"), ("title", '["x"]'), ("title", '"a\\nb"'),
        ("campaign", "1"), ("days", "1e9"), ("days", '"1"'), ("days", "0"), ("records", "100000000000000000000"),
        ("records", "0x" + "f" * 5000), ("model", '"zz"'), ("model", f'"{"00" * 31}"'), ("model", "1"), ("score", "[]"),
        ("channel", "{}"), ("epsilon", '"2"'), ("epsilon", "nan"), ("alpha", "1.5"), ("delta", "inf"), ("max-corrupt", "-1"),
        ("minimum-reports", "0.5"), ("bins", "1979-05-27"), ("beta", "true"), ("privacy-delta", '""'), ("mechanism", "0"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_is_named(name: str, value: str, place: Place) -> None:
    """Of another type, not finite or out of bounds: one line that names it and what is accepted, and nothing is stored."""
    code, complaint = create(place, **{name: value})
    assert (code, complaint.count("\n")) == (2, 1)
    assert complaint.startswith(f"error: {name} is ")
    assert "; accepted is " in complaint
    assert place.store.campaigns() == []


def test_settings_within_bounds_are_taken(place: Place) -> None:
    """Whole numbers stand for numbers, and what is left out has its default."""
    assert create(place) == (0, "")
    assert create(place, epsilon="2", days="3650", round_seconds="315360000", owners="40", title='"autumn"') == (0, "")
    assert sorted(one.settings.owners for one in place.store.campaigns()) == [0, 40]
    with pytest.raises(BadInput, match="round-seconds is inf"):
        Settings(round_seconds=math.inf)


def test_a_file_that_is_no_toml_is_refused(place: Place) -> None:
    """Also where it is a number that Python does not read."""
    for value in ("9" * 5000, "]"):
        code, complaint = create(place, records=value)
        assert (code, "cannot be read as TOML" in complaint) == (2, True)


def test_a_certificate_that_cannot_be_used_is_told_from_an_address(place: Place, tmp_path: Path) -> None:
    """What is no certificate, no key, another's key, or no authority is named with its file before anything listens."""
    create_keys(tmp_path / "other", address="127.0.0.1", now=datetime.now(UTC))
    junk = tmp_path / "junk.pem"
    junk.write_text("-----BEGIN CERTIFICATE-----\nnot base64\n-----END CERTIFICATE-----\n")
    cert, key = place.keys / "server.pem", place.keys / "server.key"

    def serve(cert: Path, key: Path, *more: Any) -> str:
        code, complaint = said(
            "serve", "--key", place.keys / SIGNING_KEY, "--db", place.url, "--listen", "127.0.0.1:0", "--tls-cert", cert,
            "--tls-key", key, *more,
        )  # fmt: skip
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
    code, complaint = said("serve", "--key", place.keys / SIGNING_KEY, "--insecure-loopback", "--listen", f"127.0.0.1:{port}")
    assert code == 2
    assert "--listen is" in complaint


def test_the_database_is_for_its_owner_alone(place: Place) -> None:
    """The file and those beside it are readable for nobody else; one that is there keeps the mode it was given."""
    place.campaign(plan_now())
    files = sorted(place.folder.glob("confide.sqlite*"))
    assert [file.name for file in files] == ["confide.sqlite", "confide.sqlite-shm", "confide.sqlite-wal"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    files[0].chmod(0o640)
    assert said("campaign", "status", "--db", place.url)[0] == 0
    assert files[0].stat().st_mode & 0o777 == 0o640


def test_what_is_purged_is_in_no_file(place: Place) -> None:
    """Neither in the database nor in its log, while others use it; a second purge does not move the moment of the first."""
    campaign, secret = place.campaign(plan_now()), b"how it was reported"
    place.enrol("owner")
    place.store.ask(campaign, 0, b"query", now=0.0, seconds=1.0)
    writer = Writer(place.store.engine, Vitals())
    batches = [Packed(bytes([i]) * 16, 1, (secret + bytes([i])) * 5_000) for i in range(20)]
    assert writer.put(Parcel(campaign, 0, 1, batches)).result() == wire.Code.OK

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
