"""The ledger's file: killed processes, earlier versions, backups and copies."""

import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from confide.client.home import Home
from confide.client.ledger.ledger import Ledger
from confide.protocol.errors import BadInput
from tests.support.owners.spending import ASKED, RECORDS, spend
from tests.support.repository.places import ROOT

KILLED = """
import os, signal, sys
from pathlib import Path
from confide.client.ledger.ledger import Ledger
from tests.support.owners.spending import spend
spend(Ledger(Path(sys.argv[1])))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_file_alone_knows_every_spend(tmp_path: Path) -> None:
    """Killed with signal 9 after an answer was given: a copy of the one file, without what stood
    beside it, forgets nothing."""
    path = tmp_path / "ledger"
    assert (
        subprocess.run(
            [sys.executable, "-c", KILLED, str(path)], cwd=ROOT, timeout=60, check=False
        ).returncode
        == -9
    )
    shutil.copy(path, tmp_path / "copy")
    assert Ledger(tmp_path / "copy").spent_by_record() == (10, 2.0)


def test_a_ledger_keeps_to_its_secret(tmp_path: Path) -> None:
    """Bound once, it refuses every other secret: no old spend would be recognised under it."""
    ledger = Ledger(tmp_path / "ledger")
    ledger.bind(b"a" * 32)
    ledger.bind(b"a" * 32)
    with pytest.raises(BadInput, match="another secret"):
        Ledger(tmp_path / "ledger").bind(b"b" * 32)


def test_a_file_of_strangers_is_asked_about(tmp_path: Path) -> None:
    """Most records new to a ledger that knows others: refused, nothing noted; said to be new, known
    from then on."""
    ledger = Ledger(tmp_path / "ledger")
    ledger.admit(RECORDS)
    ledger.admit(RECORDS + [bytes([100 + i]) for i in range(10)])
    strangers = [bytes([200 + i]) for i in range(30)]
    for _ in range(2):
        with pytest.raises(
            BadInput, match=r"30 of 30 records are new to the ledger, which knows 20.*--new-records"
        ):
            ledger.admit(strangers)
    ledger.admit(strangers, new=True)
    ledger.admit(strangers)


OLD = """
CREATE TABLE plans (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE,
    campaign TEXT NOT NULL, epsilon REAL NOT NULL);
CREATE TABLE queries (id INTEGER PRIMARY KEY, plan INTEGER NOT NULL REFERENCES plans,
    digest BLOB NOT NULL,
    round INTEGER NOT NULL, at TEXT NOT NULL, answer BLOB, {receipt} UNIQUE (plan, digest));
CREATE TABLE spends (record BLOB NOT NULL, plan INTEGER NOT NULL REFERENCES plans,
    query INTEGER NOT NULL REFERENCES queries,
    epsilon REAL NOT NULL, {delta} PRIMARY KEY (record, plan)) WITHOUT ROWID;
INSERT INTO plans VALUES (1, 'old', 'c', 2.0);
INSERT INTO queries (id, plan, digest, round, at) VALUES (1, 1, 'q', 0, '2026-01-01');
INSERT INTO spends (record, plan, query, epsilon) VALUES (x'00', 1, 1, 2.0);
"""


@pytest.mark.parametrize("version", [1, 2])
def test_earlier_ledgers_keep_their_spends(version: int, tmp_path: Path) -> None:
    """A ledger of an earlier format, in write-ahead mode: its spends count for every key, and its
    records are known."""
    path, later = tmp_path / "ledger", version == 2
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    parts = {
        "receipt": "receipt INTEGER," if later else "",
        "delta": "delta REAL NOT NULL DEFAULT 0," if later else "",
    }
    db.executescript(OLD.format(**parts) + f"PRAGMA user_version = {version};")
    db.close()
    ledger = Ledger(path)
    assert ledger.spent_by_record() == (1, 2.0)
    assert spend(ledger) == b"[1, 2, 3, 4, 5, 6, 7, 8, 9]"
    with pytest.raises(BadInput, match="which knows 1"):
        ledger.admit([b"n"])
    assert not path.with_name("ledger-wal").exists()


def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


def test_a_backup_brings_every_spend_back(tmp_path: Path) -> None:
    """Made while the ledger is open, restored into an empty place: policy, secret, keys and spends
    are there."""
    place = home(tmp_path)
    ledger = place.ledger()
    spend(ledger)
    place.backup(tmp_path / "backup")
    assert {path.name for path in (tmp_path / "backup").iterdir()} == {
        "policy.toml",
        "secret.key",
        "node.key",
        "node.pub",
        "ledger.sqlite",
    }
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "backup").iterdir())
    other = Home(tmp_path / "other")
    other.restore(tmp_path / "backup")
    assert other.ledger().spent_by_record() == (10, 2.0)
    assert other.secret() == place.secret()


def test_a_backup_never_gives_a_spend_back(tmp_path: Path) -> None:
    """Restored over a ledger that knows more it changes nothing, spends and rounds alike; another
    secret's is refused."""
    place = home(tmp_path)
    rounds = [
        replace(ASKED, plan=b"rounds", campaign="rounds", query=bytes([i]), round_=i, rounds=3)
        for i in range(3)
    ]
    spend(place.ledger(), rounds[0])
    place.backup(tmp_path / "backup")
    spend(place.ledger())
    first = [spend(place.ledger(), asked, draw=lambda _: b"first") for asked in rounds[1:]]
    assert place.restore(tmp_path / "backup") == [place.ledger_file]
    assert (
        [spend(place.ledger(), asked, draw=lambda _: b"second") for asked in rounds[1:]]
        == first
        == [b"first"] * 2
    )
    assert place.ledger().spent_by_record() == (10, 4.0)
    stranger = Home(tmp_path / "stranger")
    stranger.create()
    with pytest.raises(BadInput, match="another secret"):
        stranger.restore(tmp_path / "backup")
    with pytest.raises(BadInput, match="exists"):
        place.backup(tmp_path / "backup")


def test_a_backup_of_an_earlier_format_is_restored(tmp_path: Path) -> None:
    """It stays as it is: the version that made it may have to read it."""
    place = home(tmp_path)
    spend(place.ledger())
    place.backup(tmp_path / "backup")
    saved = tmp_path / "backup" / "ledger.sqlite"
    db = sqlite3.connect(saved)
    db.execute("ALTER TABLE queries DROP COLUMN together")
    db.execute("ALTER TABLE plans DROP COLUMN training")
    db.execute("PRAGMA user_version = 3")
    db.close()
    before = saved.read_bytes()
    other = Home(tmp_path / "other")
    other.restore(tmp_path / "backup")
    assert other.ledger().spent_by_record() == (10, 2.0)
    assert saved.read_bytes() == before


def test_a_copy_is_no_second_budget(tmp_path: Path) -> None:
    """A backup, and a folder that was copied, stop whoever uses them; restored into a new folder
    they know what was spent."""
    place = home(tmp_path)
    spend(place.ledger())
    place.backup(tmp_path / "backup")
    shutil.copytree(place.folder, tmp_path / "copied")
    with pytest.raises(BadInput, match="is a backup"):
        Home(tmp_path / "backup").ledger()
    with pytest.raises(BadInput, match="is a copy of a ledger"):
        Home(tmp_path / "copied").ledger()
    for number, source in enumerate(("backup", "copied")):
        other = Home(tmp_path / str(number))
        other.restore(tmp_path / source)
        assert other.ledger().spent_by_record() == (10, 2.0)


def test_a_ledger_that_lost_its_content_is_refused(tmp_path: Path) -> None:
    """An empty file, as a full disk or a failed copy leaves it, is not taken for a ledger that has
    spent nothing."""
    place = home(tmp_path)
    spend(place.ledger())
    place.ledger_file.write_bytes(b"")
    with pytest.raises(BadInput, match="has lost its content"):
        place.ledger()


@pytest.mark.parametrize("lost", ["secret_file", "ledger_file"])
def test_a_lost_half_is_never_made_anew(lost: str, tmp_path: Path) -> None:
    """A secret without its ledger, or a ledger without its secret: `init` and everything else stop
    and point at the backup."""
    place = home(tmp_path)
    spend(place.ledger())
    getattr(place, lost).unlink()
    with pytest.raises(BadInput, match="restore"):
        place.create()
    with pytest.raises(BadInput, match=r"restore|init"):
        place.ledger()
