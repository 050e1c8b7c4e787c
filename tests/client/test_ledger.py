import shutil
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from confide.client.home import Home
from confide.client.ledger.charges import Cost, Question, SpendingLimits
from confide.client.ledger.ledger import Ledger
from confide.protocol.errors import BadInput
from tests.support.owners import NOW
from tests.support.places import ROOT

ASKED = Question(plan=b"p", campaign="c", aggregator=b"k" * 32, query=b"q", round_=0)
LIMITS = SpendingLimits(record=Cost(4.0, 1e-5), campaign=Cost(2.0, 1e-5), fewest=2)
RECORDS = [bytes([i]) for i in range(10)]


def spend(
    ledger: Ledger,
    asked: Question = ASKED,
    epsilon: float = 2.0,
    records: Any = RECORDS,
    draw: Any = None,
) -> Any:
    draw = draw or (lambda places: repr(places).encode())
    payers = [(record,) for record in records]
    return ledger.answer(
        asked, cost=Cost(epsilon), limits=LIMITS, payers=payers, draw=draw, now=NOW
    )


def test_the_same_name_signed_again_spends_from_the_same_campaign(tmp_path: Path) -> None:
    """A campaign is a name and a key: a second plan of both finds it spent; another name or key
    draws on the lifetime only."""
    ledger = Ledger(tmp_path / "ledger")
    assert spend(ledger) is not None
    assert spend(ledger, replace(ASKED, plan=b"again")) is None
    assert spend(ledger, replace(ASKED, plan=b"other", aggregator=b"o" * 32)) is not None
    assert spend(ledger, replace(ASKED, plan=b"third", campaign="d"), epsilon=0.5) is None
    assert ledger.spent_by_record() == (10, 4.0)


def test_part_of_a_campaign_may_be_spent_by_a_second_plan(tmp_path: Path) -> None:
    """Within the campaign's limit plans of one name add up."""
    ledger = Ledger(tmp_path / "ledger")
    assert [
        spend(ledger, replace(ASKED, plan=bytes([i])), epsilon=0.75) is not None for i in range(3)
    ] == [True, True, False]


def test_nobody_waits_while_an_answer_is_drawn(tmp_path: Path) -> None:
    """Drawing holds no lock: another connection spends, writes and reads meanwhile."""
    slow, quick = Ledger(tmp_path / "ledger"), Ledger(tmp_path / "ledger")
    seen = []

    def draw(places: list[int]) -> bytes:
        done = threading.Event()

        def other() -> None:
            mine = Ledger(tmp_path / "ledger")
            seen.append(
                spend(mine, replace(ASKED, plan=b"other", campaign="other"), records=[b"x", b"y"])
            )
            mine.close()
            done.set()

        threading.Thread(target=other, daemon=True).start()
        assert done.wait(20)
        return b"slow"

    assert spend(slow, draw=draw) == b"slow"
    assert seen == [b"[0, 1]"]
    assert quick.spent_by_record() == (12, 2.0)


def test_a_draw_that_was_overtaken_goes_nowhere(tmp_path: Path) -> None:
    """The same query answered meanwhile: its bytes; records spent meanwhile: drawn again without
    them."""
    first, second = Ledger(tmp_path / "ledger"), Ledger(tmp_path / "ledger")
    assert (
        spend(first, draw=lambda _: spend(second, draw=lambda _: b"second") and b"first")
        == b"second"
    )
    drawn = []

    def draw(places: list[int]) -> bytes:
        drawn.append(places)
        if len(drawn) == 1:
            assert (
                spend(second, replace(ASKED, plan=b"n", query=b"half"), records=RECORDS[:5]) is None
            )
            assert (
                spend(
                    second,
                    replace(ASKED, plan=b"n", campaign="n", query=b"half"),
                    records=RECORDS[:5],
                )
                is not None
            )
        return b"drawn"

    assert (
        spend(first, replace(ASKED, plan=b"n", campaign="n", query=b"all"), draw=draw) == b"drawn"
    )
    assert drawn == [list(range(10)), list(range(5, 10))]
    assert first.spent_by_record() == (10, 4.0)


def test_a_failed_draw_of_spent_records_is_not_charged_for_others(tmp_path: Path) -> None:
    """A draw that failed is charged as it was drawn; one that was overtaken is drawn again, and
    charged once."""
    first, second = Ledger(tmp_path / "ledger"), Ledger(tmp_path / "ledger")
    tries = []

    def draw(places: list[int]) -> bytes:
        tries.append(places)
        if len(tries) == 1:
            spend(second, replace(ASKED, query=b"half"), records=RECORDS[:5])
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        spend(first, draw=draw)
    assert tries == [list(range(10)), list(range(5, 10))]
    assert first.spent_by_record() == (10, 2.0)


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.client.test_ledger import Ledger, spend
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


def test_a_person_pays_whatever_names_its_records(tmp_path: Path) -> None:
    """Records that spent for themselves bring it to their person, who then pays for all of them;
    nobody changes hands."""
    ledger = Ledger(tmp_path / "ledger")
    pair, limits = [b"one", b"two"], replace(LIMITS, fewest=1)
    ledger.admit(pair)
    given: Any = {
        "cost": Cost(2.0),
        "limits": limits,
        "draw": lambda places: repr(places).encode(),
        "now": NOW,
    }
    assert ledger.answer(ASKED, payers=[(b"one",), (b"two",)], **given) == b"[0, 1]"
    ledger.admit(pair, [b"anna", b"anna"])
    assert ledger.persons() == {b"one": b"anna", b"two": b"anna"}
    assert ledger.spent_by_record() == (1, 4.0)
    later = replace(ASKED, plan=b"later", campaign="later", query=b"later")
    assert ledger.answer(later, payers=[(b"one", b"anna")], **given) is None
    with pytest.raises(BadInput, match="belonged to other persons"):
        ledger.admit(pair, [b"anna", b"ben"])


def test_the_smallest_group_holds_in_every_round(tmp_path: Path) -> None:
    """A later round that only one charged record would answer is refused like a first."""
    ledger = Ledger(tmp_path / "ledger")
    first, second = (replace(ASKED, query=bytes([i]), round_=i, rounds=3) for i in range(2))
    assert spend(ledger, first) is not None
    assert spend(ledger, second, records=[RECORDS[0], b"x", b"y", b"z"]) is None
    assert spend(ledger, second, records=RECORDS[:2]) == b"[0, 1]"


def test_two_signers_of_one_plan_are_both_charged(tmp_path: Path) -> None:
    """What a plan costs counts in the campaign of everybody who signed it."""
    ledger = Ledger(tmp_path / "ledger")
    other = replace(ASKED, aggregator=b"o" * 32, query=b"other")
    assert spend(ledger, records=RECORDS[:5]) is not None
    assert spend(ledger, other, records=RECORDS[5:]) is not None
    for key in (ASKED.aggregator, other.aggregator):
        assert spend(ledger, replace(ASKED, plan=b"next", aggregator=key)) is None


def test_an_answer_leaves_only_within_the_limits_of_now(tmp_path: Path) -> None:
    """Lower limits, of a life or a campaign, or a larger group keep an answer that was drawn under
    others."""
    ledger = Ledger(tmp_path / "ledger")
    spend(ledger)
    assert ledger.may_leave(b"p", b"q", LIMITS)
    for stricter in (
        replace(LIMITS, record=Cost(1.9, 1e-5)),
        replace(LIMITS, campaign=Cost(1.9, 1e-5)),
        replace(LIMITS, fewest=11),
    ):
        assert not ledger.may_leave(b"p", b"q", stricter)


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


def test_an_answer_keeps_its_time(tmp_path: Path) -> None:
    """The ledger shows when a campaign was last answered."""
    ledger = Ledger(tmp_path / "ledger")
    spend(ledger)
    later = replace(ASKED, query=b"second")
    given: Any = {
        "cost": Cost(1.0),
        "limits": LIMITS,
        "payers": [(b"x",), (b"y",)],
        "draw": lambda _: b"",
    }
    ledger.answer(later, now=NOW + timedelta(days=1), **given)
    assert ledger.campaigns()[0].last == (NOW + timedelta(days=1)).isoformat()
