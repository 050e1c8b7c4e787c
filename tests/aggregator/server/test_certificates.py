import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from confide.aggregator.cli.server import app
from confide.aggregator.keys import SIGNING_KEY
from confide.client.transport.grpc_client import Aggregator
from confide.client.transport.retry import Patience, Unreachable
from confide.protocol.files import write_new, write_whole
from confide.protocol.plan import digest
from tests.support.owners.answers import answer, bit_batch
from tests.support.owners.hostile import Wire
from tests.support.servers.servers import Place, eventually, plan_now


def issue(name: str, out: Path, keys: Path) -> tuple[int, str]:
    """`owner certificate`: its exit code, and what it complains of."""
    result = CliRunner().invoke(
        app, ["owner", "certificate", name, "--keys", str(keys), "--out", str(out)]
    )
    return result.exit_code, result.stderr


def nameless(keys: Path) -> tuple[bytes, bytes]:
    """A key and certificate of the owners' authority that bears no name."""
    signer = serialization.load_pem_private_key((keys / "owners.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key, now, soon = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC), timedelta(hours=1)
    authority = x509.load_pem_x509_certificate((keys / "owners.pem").read_bytes()).subject
    builder = x509.CertificateBuilder(
        authority, x509.Name([]), key.public_key(), x509.random_serial_number()
    )
    made = (
        builder.not_valid_before(now - soon)
        .not_valid_after(now + soon)
        .sign(signer, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, made.public_bytes(pem)


def test_a_stolen_token_is_no_use_under_another_certificate(tmp_path: Path) -> None:
    """Under mutual TLS a token counts only with a certificate of its owner's name: not another's,
    not one without, not none."""
    place = Place(tmp_path / "aggregator")
    try:
        plan = plan_now()
        campaign, token = place.campaign(plan), place.enrol("alice")
        for name in ("alice", "mallory"):
            assert issue(name, tmp_path / name, place.keys) == (0, "")
        pairs = {
            name: (tmp_path / name / "owner.key", tmp_path / name / "owner.pem")
            for name in ("alice", "mallory")
        }
        made = {name: (key.read_bytes(), pem.read_bytes()) for name, (key, pem) in pairs.items()}
        made["nobody"] = nameless(place.keys)
        server = place.serve("--client-ca", str(place.keys / "owners.pem"))
        eventually(lambda: place.store.rounds(campaign))
        report = answer(bit_batch(3), plan=digest(plan.to_bytes()))
        codes = {
            who: Wire(server, campaign, token, pair).submit(report) for who, pair in made.items()
        }
        assert codes == {"alice": "OK", "mallory": "UNAUTHENTICATED", "nobody": "UNAUTHENTICATED"}
        remote = Aggregator(server.access(token), campaign, patience=Patience(1))
        with pytest.raises(Unreachable, match="it may expect TLS, or a certificate of yours"):
            remote.plan()
    finally:
        place.close()


def test_owners_certificates_are_issued_by_one_authority(tmp_path: Path) -> None:
    """Keys are for their owner's eyes, nothing is replaced, and what would not work exits with 2
    and says why."""
    keys = tmp_path / "keys"
    assert CliRunner().invoke(app, ["init", str(keys)]).exit_code == 0
    assert issue("north", tmp_path / "north", keys) == (0, "")
    authority = (keys / "owners.pem").read_bytes()
    assert issue("Süd 1/2", tmp_path / "south", keys) == (0, "")
    assert (keys / "owners.pem").read_bytes() == authority
    private = [*keys.glob("*.key"), tmp_path / "north/owner.key", tmp_path / "south/owner.key"]
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
    assert not list(tmp_path.rglob(".*"))
    own = x509.load_pem_x509_certificate((tmp_path / "south/owner.pem").read_bytes())
    own.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    (tmp_path / "file").write_text("")
    (tmp_path / "half").mkdir()
    for file in (SIGNING_KEY, "owners.pem"):
        (tmp_path / "half" / file).write_bytes((keys / file).read_bytes())
    before, new = (keys / "owners.key").read_bytes(), tmp_path / "new"
    wrong = {
        "holds the files of an owner already": issue("north", tmp_path / "north", keys),
        "1 to 64 bytes": issue("ü" * 33, new, keys),
        "printable": issue("a\nb", new, keys),
        "holds no aggregator.key": issue("a", new, tmp_path / "none"),
        "no owners.key": issue("a", new, tmp_path / "half"),
        "cannot write": issue("a", tmp_path / "file" / "a", keys),
    }
    (keys / "owners.key").write_bytes((tmp_path / "north/owner.key").read_bytes())
    wrong["of another key"] = issue("a", new, keys)
    for says, (code, error) in wrong.items():
        assert (code, says in error) == (2, True), error
    assert not new.exists()
    # A crash between the key and its certificate: the next call makes the certificate of that key.
    signer = serialization.load_pem_private_key(before, None)
    (keys / "owners.key").write_bytes(before)
    (keys / "owners.pem").unlink()
    assert issue("a", new, keys) == (0, "")
    assert (
        x509.load_pem_x509_certificate((keys / "owners.pem").read_bytes()).public_key()
        == signer.public_key()
    )


def test_a_file_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content is synced, then named, then the folder is synced; what exists is neither replaced nor
    touched."""
    done: list[str] = []

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            done.append(name)
            return real(*given)

        return call

    for name in ("fsync", "link", "replace"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    path = tmp_path / "a"
    assert write_new({path: b"secret"}) == [path]
    assert done == ["fsync", "link", "fsync"]
    assert write_new({path: b"other"}) == []
    write_whole(tmp_path / "b", "text")
    assert done[3:] == ["fsync", "replace", "fsync"]
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        "a": b"secret",
        "b": b"text",
    }
