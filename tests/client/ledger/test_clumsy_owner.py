"""Owners that edit, copy, restore and run two processes at once, through their real commands."""

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from confide.client.home import Home
from confide.client.ledger.charges import Cost, LedgerQuery, SpendingLimits
from confide.client.owner import kept_owner, open_owner
from confide.protocol.methods.training.query import TrainingQuery
from confide.protocol.plan import digest, query_digest, sign_plan, write_query
from confide.protocol.wire import wire_pb2 as wire
from tests.support.networks.graphs import first_feature, written
from tests.support.owners.boundary import (
    HALF,
    LEARNS,
    PLAN,
    ROUND,
    STEPS,
    TRAINING,
    crowd,
    home,
    people,
)
from tests.support.owners.hostile import Puppet
from tests.support.owners.owners import KEY, NOW, PUBLIC, changed
from tests.support.servers.servers import client

OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
BOTH = f'["{PUBLIC.hex()}", "{OTHER.public_key().public_bytes_raw().hex()}"]'


def test_two_aggregators_may_use_one_name(tmp_path: Path) -> None:
    """A campaign is a name and a key. The second answer was charged and then kept back, because
    its campaign was taken for the first one's."""
    path, name = written(tmp_path, first_feature())
    place = home(tmp_path, name, aggregators=BOTH, epsilon_per_record="8.0")
    records = people(tmp_path / "records.npz", crowd(0.9))
    policy = Home(place).policy_file
    policy.write_text(
        policy.read_text().replace("epsilon_per_campaign = 20.0", "epsilon_per_campaign = 4.0")
    )
    asked = replace(HALF, channel=type(HALF.channel)(epsilon=4.0))
    for number, key in enumerate((None, OTHER)):
        plan = changed(PLAN, model=name, epsilon=4.0, minimum_reports=number)
        with Puppet(plan, asked) as puppet:
            puppet.signed = puppet.signed if key is None else sign_plan(plan, key)
            assert puppet.ask(place, records, "--model", path) == 0
        assert puppet.codes == ["OK"]
    assert Home(place).ledger().spent_by_record()[1] == 8.0


def test_an_older_copy_put_in_its_place_is_noticed(tmp_path: Path) -> None:
    """`cp` back over the ledger keeps secret and inode, and forgets what was spent since; so does a
    client that has it open meanwhile. The newest backup brings everything back."""
    path, name = written(tmp_path, first_feature())
    place, records = home(tmp_path, name), people(tmp_path / "records.npz", crowd(0.9))
    ledger, saved = Home(place).ledger_file, tmp_path / "saved"
    one = open_owner(Home(place), records, path)
    shutil.copyfile(ledger, saved)
    with Puppet(changed(PLAN, model=name), HALF) as puppet:
        assert puppet.ask(place, records, "--model", path) == 0
    assert client("backup", tmp_path / "newest", "--home", place)[0] == 0
    shutil.copyfile(saved, ledger)
    with Puppet(changed(PLAN, model=name, campaign="again"), HALF) as puppet:
        assert puppet.ask(place, records, "--model", path) == 2
        answer = wire.Answer.FromString(one.answer(puppet.signed, puppet.query))
        assert wire.Code.Name(answer.code) == "INTERNAL"
        assert puppet.answers == []
        assert client("restore", tmp_path / "newest", "--home", place, "--yes")[0] == 0
        puppet.ask(place, records, "--model", path)
    assert puppet.codes == ["ALREADY_SPENT"]


def persons_file(path: Path, ids: Any, persons: Any = None) -> Path:
    columns: dict[str, Any] = {} if persons is None else {"person": persons}
    features, labels = np.full((len(ids), 2), 0.4), np.zeros(len(ids), dtype=int)
    np.savez(path, ids=ids, labels=labels, features=features, **columns)
    return path


def test_new_records_without_a_person_are_asked_about(tmp_path: Path) -> None:
    """A file without the column `person` gave every new record of a person a budget of its own."""
    path, name = written(tmp_path, first_feature())
    place, plan = home(tmp_path, name), changed(PLAN, model=name)
    first = persons_file(tmp_path / "first.npz", np.arange(200), np.arange(200) % 50)
    with Puppet(plan, HALF) as puppet:
        assert puppet.ask(place, first, "--model", path) == 0
    later = persons_file(tmp_path / "later.npz", np.arange(260))
    with Puppet(changed(plan, campaign="next"), HALF) as puppet:
        assert puppet.ask(place, later, "--model", path) == 2
        assert puppet.answers == []
        named = persons_file(tmp_path / "named.npz", np.arange(260), np.arange(260) % 50)
        assert puppet.ask(place, named, "--model", path) == 1
        assert puppet.codes == ["ALREADY_SPENT"]
    others = np.concatenate([np.arange(200), np.arange(400, 450)])
    strangers = persons_file(tmp_path / "strangers.npz", others)
    with Puppet(changed(plan, campaign="others"), HALF) as puppet:
        assert puppet.ask(place, strangers, "--model", path, "--new-records") == 0
    assert Home(place).ledger().spent_by_record() == (100, 20.0)


def test_persons_that_another_process_names_are_not_passed_by(tmp_path: Path) -> None:
    """One process has the records open, another gives them persons: the first one would let all
    records of a person answer, and charge nobody but them."""
    path, name = written(tmp_path, first_feature())
    place, plan = home(tmp_path, name), changed(PLAN, model=name)
    plain = persons_file(tmp_path / "plain.npz", np.arange(200))
    one = open_owner(Home(place), plain, path)
    named = persons_file(tmp_path / "named.npz", np.arange(200), np.arange(200) % 50)
    assert client("register", named, "--home", place)[0] == 0
    with Puppet(plan, HALF) as puppet:
        answer = wire.Answer.FromString(one.answer(puppet.signed, puppet.query))
        assert wire.Code.Name(answer.code) == "INTERNAL"
        assert Home(place).ledger().spent_by_record() == (0, 0.0)
        assert puppet.ask(place, plain, "--model", path) == 0
    assert Home(place).ledger().spent_by_record() == (50, 20.0)


def test_a_person_pays_for_what_two_ledgers_knew_apart(tmp_path: Path) -> None:
    """One ledger knows whose a record is, the other what it has spent: restored into one, the
    person has spent it."""
    first, limits = Home(tmp_path / "first"), SpendingLimits(Cost(9.0), Cost(9.0), 1)
    first.create()
    first.ledger().admit([b"a", b"b"])
    first.backup(tmp_path / "before")
    first.ledger().admit([b"a", b"b"], [b"p", b"p"])
    first.backup(tmp_path / "after")
    shutil.rmtree(first.folder)
    assert client("restore", tmp_path / "before", "--home", first.folder, "--yes")[0] == 0
    asked = LedgerQuery(b"plan", "c", b"k" * 32, b"query", 0)
    payers = [(b"a",), (b"b",)]
    first.ledger().answer(
        asked, cost=Cost(2.0), limits=limits, payers=payers, draw=lambda _: b"x", now=NOW
    )
    assert client("restore", tmp_path / "after", "--home", first.folder, "--yes")[0] == 0
    assert first.ledger().spent_by_record() == (1, 4.0)
    assert client("restore", tmp_path / "after", "--home", first.folder, "--yes")[0] == 0
    assert first.ledger().spent_by_record() == (1, 4.0)


def test_a_backup_of_another_secret_leaves_nothing_behind(tmp_path: Path) -> None:
    """Beside a ledger whose secret is lost, the secret of somebody else was written, and the right
    backup was refused from then on."""
    mine, other = Home(tmp_path / "mine"), Home(tmp_path / "other")
    for place in (mine, other):
        place.create()
        place.backup(tmp_path / f"backup of {place.folder.name}")
    mine.secret_file.unlink()
    assert client("restore", tmp_path / "backup of other", "--home", mine.folder, "--yes")[0] == 2
    assert not mine.secret_file.exists()
    assert client("restore", tmp_path / "backup of mine", "--home", mine.folder, "--yes")[0] == 0
    mine.ledger()


def test_a_damaged_backup_makes_no_empty_ledger(tmp_path: Path) -> None:
    """Half a file: `restore` stops, and left an empty ledger beside the old secret, so that the
    next command answered with full budgets."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(TRAINING, ROUND) as puppet:
        assert puppet.ask(place, records) == 0
    assert client("backup", tmp_path / "backup", "--home", place)[0] == 0
    saved = tmp_path / "backup" / "ledger.sqlite"
    whole = saved.read_bytes()
    saved.write_bytes(whole[: len(whole) // 2])
    new = tmp_path / "new"
    assert client("restore", tmp_path / "backup", "--home", new, "--yes")[0] == 2
    with Puppet(changed(TRAINING, campaign="again"), ROUND) as puppet:
        new.mkdir(exist_ok=True)
        assert puppet.ask(new, records) == 2
    assert puppet.answers == []
    shutil.rmtree(new)
    saved.write_bytes(whole)
    assert client("restore", tmp_path / "backup", "--home", new, "--yes")[0] == 0
    assert Home(new).ledger().spent_by_record() == (200, 4.0)
    assert {path.name for path in new.iterdir()} == {
        path.name for path in (tmp_path / "backup").iterdir()
    }


@pytest.mark.parametrize("held", [True, False])
def test_a_training_does_not_fill_the_disk(held: bool, tmp_path: Path) -> None:
    """The weights of a round that the aggregator holds are not kept after the next round, which
    leaves the round answered all the same; those that it does not hold are kept and sent."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    receipt = "OK" if held else "INTERNAL"
    with Puppet(TRAINING, ROUND, receipt=receipt) as puppet:
        puppet.ask(place, records)
    later = TrainingQuery(STEPS, ROUND.weights + 1)
    with Puppet(TRAINING, later, round_=1, receipt=receipt) as puppet:
        puppet.ask(place, records)
    assert puppet.codes == ["OK"] * (1 if held else 2)
    db = sqlite3.connect(Home(place).ledger_file)
    kept = [row[0] for row in db.execute("SELECT LENGTH(answer) > 0 FROM queries ORDER BY round")]
    assert kept == [not held, True]
    with Puppet(TRAINING, ROUND) as puppet:
        puppet.ask(place, records)
    assert puppet.codes == (["ALREADY_SPENT"] if held else ["OK", "OK"])
    with Puppet(TRAINING, replace(later, weights=ROUND.weights + 2), round_=1) as puppet:
        puppet.ask(place, records)
    assert puppet.codes == ["ALREADY_SPENT"]


def test_a_flower_node_keeps_the_last_answer_of_a_training(tmp_path: Path) -> None:
    """There are no receipts: a round is asked when the one before is stored, and repeated until
    then. A round that is not kept is answered all the same."""
    place, records = Home(home(tmp_path, **LEARNS)), people(tmp_path / "records.npz", crowd(0.9))
    signed, plan = sign_plan(TRAINING, KEY), digest(TRAINING.to_bytes())
    rounds = [
        write_query(TrainingQuery(STEPS, ROUND.weights + number), plan=plan, round_=number)
        for number in range(2)
    ]

    def answers() -> list[bytes]:
        return [kept_owner(place, records, None).answer(signed, query) for query in rounds]

    first, second = answers()
    refused, again = answers()
    assert wire.Answer.FromString(first).code == wire.Code.OK
    assert (wire.Answer.FromString(refused).code, again) == (wire.Code.ALREADY_SPENT, second)
    ledger = place.ledger()
    assert ledger.unacknowledged(plan) == [(query_digest(rounds[1]), second)]
    assert (ledger.campaigns()[0].unanswered, ledger.spent_by_record()) == (0, (200, 4.0))
