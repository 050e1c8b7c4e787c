"""What would give records a second budget or a second draw, against the owner's real command."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.client.home import Home
from confide.client.ledger.ledger import Ledger
from confide.client.owner import kept_owner
from confide.client.training.local_round import Trainer
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bits import BitQuery
from confide.protocol.plan import digest, sign_plan, write_query
from confide.protocol.wire import wire_pb2 as wire
from tests.support.networks.graphs import copying, first_feature, written
from tests.support.owners.boundary import (
    HALF,
    LEARNS,
    PLAN,
    ROUND,
    STEPS,
    SURE,
    TRAINING,
    N,
    crowd,
    home,
    people,
    weights_of,
)
from tests.support.owners.hostile import Puppet
from tests.support.owners.owners import KEY, changed
from tests.support.repository.places import ROOT
from tests.support.servers.servers import client


def rewritten(folder: Path) -> list[Path]:
    """One file of records in eight ways to write it."""
    features, ids = np.random.default_rng(0).random((N, 2)), np.arange(N)
    labels = np.zeros(N, dtype=np.int64)
    single: dict[str, Any] = {
        "plain": {"ids": ids, "features": features},
        "single": {"ids": ids, "features": features.astype(np.float32)},
        "scaled": {"ids": ids, "features": features / 2},
        "float ids": {"ids": ids.astype(np.float64), "features": features},
        "text ids": {"ids": np.array([f" {i}" for i in ids]), "features": features},
        "columns": {"ids": ids, "features": features[:, ::-1]},
    }
    paths = []
    for name, columns in single.items():
        paths.append(folder / f"{name}.npz")
        np.savez(paths[-1], labels=labels, **columns)
    rows = "".join(f"{i},0,{a},{b}\n" for i, (a, b) in zip(ids, features, strict=True))
    for name, mark in (("csv", b""), ("mark", b"\xef\xbb\xbf")):
        paths.append(folder / f"{name}.csv")
        paths[-1].write_bytes(mark + b"id,label,a,b\n" + rows.encode())
    return paths


def test_a_rewritten_file_has_no_second_budget(tmp_path: Path) -> None:
    """6. Reordered, rescaled, in single precision, with a mark, with other types of ids: the same
    records, the same budget."""
    path, name = written(tmp_path, first_feature())
    place = home(tmp_path, name, epsilon_per_record="4.0", epsilon_per_campaign="2.0")
    codes = []
    for number, records in enumerate(rewritten(tmp_path)):
        plan = changed(PLAN, model=name, epsilon=2.0, campaign=f"campaign {number}")
        with Puppet(plan, BitQuery(Bit(epsilon=2.0), 0.0, 1.0, (0.5,))) as puppet:
            puppet.ask(place, records, "--model", path)
        codes += puppet.codes
    assert codes == ["OK", "OK"] + ["ALREADY_SPENT"] * 6
    assert Home(place).ledger().spent_by_record() == (N, 4.0)


def test_a_corrected_label_gets_no_second_draw(tmp_path: Path) -> None:
    """6. A record without an id is refused; with one it is the same whatever its label, so the same
    plan finds it spent. A group of one may answer here, so one record with a second name would."""
    path, name = written(tmp_path, first_feature())
    place, plan = home(tmp_path, name, minimum_group="1"), changed(PLAN, model=name)
    np.savez(tmp_path / "nameless.npz", labels=np.zeros(N, dtype=int), features=crowd(0.9))
    with Puppet(plan, HALF) as puppet:
        assert puppet.ask(place, tmp_path / "nameless.npz", "--model", path) == 2
        assert puppet.answers == []
        assert puppet.ask(place, people(tmp_path / "records.npz", crowd(0.9)), "--model", path) == 0
    labels = np.zeros(N, dtype=np.int64)
    labels[0] = 1
    with Puppet(plan, BitQuery(Bit(epsilon=SURE), 0.0, 1.0, (0.3,)), round_=1) as puppet:
        puppet.ask(place, people(tmp_path / "records.npz", crowd(0.9), labels), "--model", path)
    assert puppet.codes == ["ALREADY_SPENT"]


def test_other_names_for_most_records_are_asked_about(tmp_path: Path) -> None:
    """6. A file under new ids stops with an explanation, and goes on with --new-records, which
    `register` takes too."""
    path, name = written(tmp_path, first_feature())
    place = home(tmp_path, name)
    records = people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(changed(PLAN, model=name), HALF) as puppet:
        assert puppet.ask(place, records, "--model", path) == 0
    np.savez(
        tmp_path / "other.npz",
        ids=np.arange(N) + 1_000,
        labels=np.zeros(N, dtype=int),
        features=crowd(0.9),
    )
    with Puppet(changed(PLAN, model=name, campaign="next"), HALF) as puppet:
        assert puppet.ask(place, tmp_path / "other.npz", "--model", path) == 2
        assert client("register", tmp_path / "other.npz", "--home", place)[0] == 2
        assert puppet.answers == []
        assert client("register", tmp_path / "other.npz", "--home", place, "--new-records")[0] == 0
        assert puppet.ask(place, tmp_path / "other.npz", "--model", path) == 0


def test_who_has_the_secret_cannot_strip_the_noise(tmp_path: Path) -> None:
    """8. Two folders with the same secret, records and question: the weights that leave differ, by
    noise and nothing else."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    assert client("backup", tmp_path / "backup", "--home", place)[0] == 0
    assert client("restore", tmp_path / "backup", "--home", tmp_path / "stolen", "--yes")[0] == 0
    sent = []
    for folder in (place, tmp_path / "stolen"):
        with Puppet(TRAINING, ROUND) as puppet:
            assert puppet.ask(folder, records) == 0
        sent.append(weights_of(puppet.answers[0]))
    assert len(sent[0]) == len(sent[1]) == 4 * STEPS.size
    assert sent[0] != sent[1]


def test_a_new_secret_is_not_written_beside_an_old_ledger(tmp_path: Path) -> None:
    """9. `init` stops where the secret is gone; with another secret in its place everything
    stops."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(TRAINING, ROUND) as puppet:
        assert puppet.ask(place, records) == 0
    secret = place / "secret.key"
    kept = secret.read_bytes()
    secret.unlink()
    assert client("init", "--home", place)[0] == 2
    assert not secret.exists()
    secret.write_bytes(bytes(32))
    with Puppet(changed(TRAINING, campaign="next"), ROUND) as puppet:
        assert puppet.ask(place, records) == 2
        assert client("status", "--home", place)[0] == 2
    assert puppet.answers == []
    secret.write_bytes(kept)
    assert client("status", "--home", place)[0] == 0


def test_a_killed_client_leaves_its_spends_in_the_one_file(tmp_path: Path) -> None:
    """9. Killed with signal 9 while its answer is under way: a copy of `ledger.sqlite` alone knows
    what left."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(TRAINING, ROUND) as puppet:
        command = [sys.executable, "-m", "confide.client", *puppet.options(place, records)]
        process = subprocess.Popen(command, cwd=ROOT)
        puppet.on_submit = lambda: os.kill(process.pid, signal.SIGKILL)
        assert process.wait(timeout=120) == -9
    assert puppet.codes == ["OK"]
    shutil.copy(place / "ledger.sqlite", tmp_path / "copy.sqlite")
    assert Ledger(tmp_path / "copy.sqlite").spent_by_record() == (N, 4.0)


def test_answers_drawn_before_the_policy_was_tightened_stay(tmp_path: Path) -> None:
    """10. Drawn, not delivered, and then forbidden: the next run sends nothing; allowed again, it
    sends the same bytes."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    policy = (place / "policy.toml").read_text()
    with Puppet(TRAINING, ROUND, receipt="UNAVAILABLE") as puppet:
        assert puppet.ask(place, records) == 1
        (place / "policy.toml").write_text(
            policy.replace("epsilon_per_campaign = 20.0", "epsilon_per_campaign = 1.0")
        )
        puppet.receipt = "OK"
        assert puppet.ask(place, records) == 1
        assert puppet.codes == ["OK", "EPSILON_PER_CAMPAIGN"]
        (place / "policy.toml").write_text(policy)
        assert puppet.ask(place, records) == 0
    assert puppet.answers[2] == puppet.answers[0]


def test_a_policy_that_is_tightened_while_an_answer_is_drawn_holds_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10. The owner forbids the campaign while its records train: what was drawn stays, and leaves
    once it is allowed again. A Flower node has no other check after the draw."""
    place, records = Home(home(tmp_path, **LEARNS)), people(tmp_path / "records.npz", crowd(0.9))
    allowed, learn = place.policy_file.read_text(), Trainer.learn

    def tightened(self: Trainer, *given: Any, **named: Any) -> Any:
        place.policy_file.write_text(
            allowed.replace("epsilon_per_campaign = 20.0", "epsilon_per_campaign = 1.0")
        )
        return learn(self, *given, **named)

    monkeypatch.setattr(Trainer, "learn", tightened)
    owner = kept_owner(place, records, None)
    asked = (
        sign_plan(TRAINING, KEY),
        write_query(ROUND, plan=digest(TRAINING.to_bytes()), round_=0),
    )
    held = wire.Answer.FromString(owner.answer(*asked))
    assert (held.code, held.HasField("batch")) == (wire.Code.EPSILON_PER_CAMPAIGN, False)
    assert place.ledger().spent_by_record() == (N, 4.0)
    place.policy_file.write_text(allowed)
    assert wire.Answer.FromString(owner.answer(*asked)).code == wire.Code.OK


def test_answers_of_a_batch_stay_when_the_model_is_not_vetted_any_more(tmp_path: Path) -> None:
    """10. One record may speak through all of an answer that a vetted model was asked for in a
    batch: taken off `vetted_models`, also after a backup was restored, it does not leave."""
    path, name = written(tmp_path, copying())
    place, records = home(tmp_path, name), people(tmp_path / "records.npz", crowd(0.9))
    assert client("allow", "model", path, "--vetted", "--home", place, "--yes")[0] == 0
    vetted = (place / "policy.toml").read_text()
    with Puppet(changed(PLAN, model=name), HALF, receipt="UNAVAILABLE") as puppet:
        puppet.ask(place, records, "--model", path)
        assert client("backup", tmp_path / "backup", "--home", place)[0] == 0
        shutil.rmtree(place)
        assert client("restore", tmp_path / "backup", "--home", place, "--yes")[0] == 0
        plain = vetted.replace(f'vetted_models = ["{name.hex()}"]', "vetted_models = []")
        (place / "policy.toml").write_text(plain)
        puppet.receipt = "OK"
        assert puppet.ask(place, records, "--model", path) == 1
        assert puppet.codes == ["OK", "MODEL_NOT_ALLOWED"]
        (place / "policy.toml").write_text(vetted)
        assert puppet.ask(place, records, "--model", path) == 0
    assert puppet.answers[2] == puppet.answers[0]


def test_the_same_name_signed_again_is_the_same_campaign(tmp_path: Path) -> None:
    """10. A second plan of the same name and key finds the campaign's epsilon spent."""
    place = home(tmp_path, **LEARNS, epsilon_per_campaign="4.0")
    records, codes = people(tmp_path / "records.npz", crowd(0.9)), []
    for alpha in (0.1, 0.2):
        with Puppet(changed(TRAINING, alpha=alpha), ROUND) as puppet:
            puppet.ask(place, records)
        codes += puppet.codes
    assert codes == ["OK", "ALREADY_SPENT"]


def test_a_person_answers_once_whatever_records_it_has(tmp_path: Path) -> None:
    """A campaign draws one record of each person and charges the person: for new records later, and
    without the column, too."""
    path, name = written(tmp_path, first_feature())
    place, persons = home(tmp_path, name), np.arange(N) % 50
    columns: Any = {
        "labels": np.zeros(N, dtype=int),
        "features": np.random.default_rng(1).random((N, 2)),
        "person": persons,
    }
    np.savez(tmp_path / "records.npz", ids=np.arange(N), **columns)
    with Puppet(changed(PLAN, model=name), HALF) as puppet:
        assert puppet.ask(place, tmp_path / "records.npz", "--model", path) == 0
    assert len(puppet.answers[0].batch.ids) == 50 * 16
    assert Home(place).ledger().spent_by_record() == (50, SURE)
    np.savez(tmp_path / "later.npz", ids=np.arange(N) + N, **columns)
    with Puppet(changed(PLAN, model=name, campaign="next"), HALF) as puppet:
        assert puppet.ask(place, tmp_path / "later.npz", "--model", path) == 2
        puppet.ask(place, tmp_path / "later.npz", "--model", path, "--new-records")
        assert puppet.codes == ["ALREADY_SPENT"]
    del columns["person"]
    np.savez(tmp_path / "column.npz", ids=np.arange(N), **columns)
    with Puppet(changed(PLAN, model=name, campaign="without the column"), HALF) as puppet:
        puppet.ask(place, tmp_path / "column.npz", "--model", path)
    assert puppet.codes == ["ALREADY_SPENT"]
