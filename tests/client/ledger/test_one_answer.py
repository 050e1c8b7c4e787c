"""One answer leaves and is paid for, wherever a process is killed or a draw fails."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from confide.client.cli.app import app
from confide.client.ledger.ledger import Ledger
from confide.protocol.plan import digest, query_digest
from tests.support.owners.owners import PLAN, owner, signed
from tests.support.owners.queries import bit_query, code
from tests.support.repository.places import ROOT

KILLED = """
import os, signal, sys
from pathlib import Path
from confide.client.ledger.ledger import Ledger
from confide.client.respond import Respondent
from tests.support.owners.owners import NOW, POLICY, records, signed
from tests.support.owners.queries import bit_query

folder, moment = Path(sys.argv[1]), sys.argv[2]

def die(at):
    if moment == at:
        os.kill(os.getpid(), signal.SIGKILL)

class Watched(Ledger):
    def answer(self, asked, *, draw, **given):
        die("before")
        def watched(places):
            drawn = draw(places)
            die("drawn")
            return drawn
        answer = super().answer(asked, draw=watched, **given)
        die("committed")
        return answer

def drawn(size):
    with open(folder / "draws", "a") as log:
        log.write(f"{os.getpid()}\\n")
        log.flush()
        os.fsync(log.fileno())
    die("drawing")
    return os.urandom(size)

one = Respondent(
    records=records(200, 0), policy=lambda: POLICY, ledger=Watched(folder / "ledger.sqlite"),
    secret=b"k" * 32, entropy=drawn, now=lambda: NOW,
)
answer = one.answer(signed(), bit_query(0.5))
(folder / f"sent-{os.getpid()}").write_bytes(answer)
die("sent")
"""


@pytest.mark.parametrize("moment", ["before", "drawing", "drawn", "committed", "sent"])
def test_killed_at_any_point_one_answer_leaves(moment: str, tmp_path: Path) -> None:
    """kill -9, restart, ask again, twice: before the commit nothing is spent and nothing left,
    after it none is drawn again."""

    def run(at: str) -> int:
        return subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path), at], cwd=ROOT, timeout=60, check=False
        ).returncode

    assert run(moment) == -9
    held = moment in ("committed", "sent")
    assert Ledger(tmp_path / "ledger.sqlite").spent_by_record() == (
        (200, 4.0) if held else (0, 0.0)
    )
    assert run("never") == run("never") == 0
    sent = {path.read_bytes() for path in tmp_path.glob("sent-*")}
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert sent == {ledger.remembered(digest(PLAN.to_bytes()), query_digest(bit_query(0.5)))}
    assert [code(answer) for answer in sent] == ["OK"]
    assert len(set((tmp_path / "draws").read_text().split())) == (
        2 if moment in ("drawing", "drawn") else 1
    )
    assert ledger.spent_by_record() == (200, 4.0)
    assert ledger.campaigns()[0].unanswered == 0


def test_two_processes_on_one_ledger_send_one_answer(tmp_path: Path) -> None:
    """Started together on the same ledger both may draw, one is kept, and both send the same
    bytes."""
    command = [sys.executable, "-c", KILLED, str(tmp_path), "never"]
    both = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    sent = [path.read_bytes() for path in tmp_path.glob("sent-*")]
    assert [code(answer) for answer in sent] == ["OK", "OK"]
    assert len(set(sent)) == 1
    assert Ledger(tmp_path / "ledger.sqlite").spent_by_record() == (200, 4.0)


def test_a_draw_that_fails_is_paid_for_and_not_repeated(tmp_path: Path) -> None:
    """That it failed is told, and may depend on the records: it is charged like an answer, and
    never tried again."""
    tried = []

    def failing(size: int) -> bytes:
        tried.append(size)
        raise ArithmeticError

    one = owner(tmp_path, entropy=failing)
    assert [
        code(one.answer(signed(), query))
        for query in (bit_query(0.5), bit_query(0.5), bit_query(0.6))
    ] == ["INTERNAL", "ALREADY_SPENT", "ALREADY_SPENT"]
    assert len(tried) == 1
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert ledger.spent_by_record() == (2_000, 4.0)
    assert ledger.campaigns()[0].unanswered == 1


def test_the_ledger_refuses_what_is_not_one(tmp_path: Path) -> None:
    """A file of another kind or of a later format is not touched."""
    (tmp_path / "text").write_text("not a database, and long enough to be looked at" * 20)
    with pytest.raises(ValueError, match="cannot be used as a ledger"):
        Ledger(tmp_path / "text")
    with sqlite3.connect(tmp_path / "later") as later:
        later.execute("PRAGMA user_version = 7")
    with pytest.raises(ValueError, match="format 7"):
        Ledger(tmp_path / "later")


def test_doctor_points_at_a_ledger_that_others_can_read(tmp_path: Path) -> None:
    """One from before ledgers were made for their owner alone."""
    assert CliRunner().invoke(app, ["init", "--home", str(tmp_path)]).exit_code == 0
    assert (
        "readable by others"
        not in CliRunner().invoke(app, ["doctor", "--home", str(tmp_path)]).stdout
    )
    (tmp_path / "ledger.sqlite").chmod(0o644)
    assert (
        "0 campaigns, readable by others"
        in CliRunner().invoke(app, ["doctor", "--home", str(tmp_path)]).stdout
    )
