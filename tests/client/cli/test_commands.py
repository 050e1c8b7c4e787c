"""What an owner is shown and asked by its commands."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from confide.client.home import Home
from confide.protocol.plan import sign_plan
from confide.protocol.wire import wire_pb2 as wire
from tests.support.networks.graphs import copying, first_feature, written
from tests.support.owners.boundary import (
    HALF,
    LABELS,
    LEARNS,
    PLAN,
    ROUND,
    TRAINING,
    N,
    crowd,
    home,
    people,
)
from tests.support.owners.hostile import Puppet
from tests.support.owners.owners import KEY, PUBLIC, changed
from tests.support.servers.servers import client


def test_what_probabilities_may_say_is_said(tmp_path: Path) -> None:
    """12. `explain` tells the owner that a model's probabilities may be the features in other
    words, and that bits would hide them."""
    place = home(tmp_path, methods='["labels"]', probabilities_may_leave="true")
    (tmp_path / "plan.bin").write_bytes(sign_plan(changed(PLAN, terms=LABELS), KEY))
    shown = client("explain", tmp_path / "plan.bin", "--home", place)[1]
    assert "may spell out the features" in shown
    assert "A campaign of bits would hide all of it" in shown
    (tmp_path / "bits.bin").write_bytes(sign_plan(PLAN, KEY))
    assert "campaign of bits" not in client("explain", tmp_path / "bits.bin", "--home", place)[1]


def test_features_that_leave_are_said_in_capitals_and_need_their_own_clause(tmp_path: Path) -> None:
    """`explain` says what leaves, that no model is needed here, and that bits hide more. Only
    `features_may_leave` allows it: leave to send probabilities does not."""
    plan = tmp_path / "plan.bin"
    plan.write_bytes(sign_plan(changed(PLAN, terms=replace(LABELS, sent_features=7)), KEY))
    allowed = "Under your policy this plan is allowed."
    for clause, holds in (("probabilities_may_leave", False), ("features_may_leave", True)):
        place = home(tmp_path / clause, methods='["labels"]', **{clause: "true"})
        shown = client("explain", plan, "--home", place)[1]
        assert "ITS FEATURES, ALL 7 NUMBERS OF THE RECORD, IN CLEAR" in shown
        assert "NOTHING PROTECTS THE FEATURES" in shown
        assert "a campaign of" in shown
        assert (allowed in shown) == holds
        assert ("`features_may_leave` is false" in shown) != holds


def test_a_vetted_model_sees_many_records_and_explain_says_so(tmp_path: Path) -> None:
    """A model that copies one record to all others does what the owner was warned of, if it is
    vetted; else it cannot."""
    path, name = written(tmp_path, copying())
    plan, said = changed(PLAN, model=name), "it sees many records at once"
    (tmp_path / "plan.bin").write_bytes(sign_plan(plan, KEY))
    features = np.where(np.arange(N) == 0, 0.9, 0.1)[:, None] * [1.0, 1.0]
    records = people(tmp_path / "records.npz", features)
    for vetted in (False, True):
        place = home(tmp_path / str(vetted), name)
        if vetted:
            assert client("allow", "model", path, "--vetted", "--home", place, "--yes")[0] == 0
        shown = client("explain", tmp_path / "plan.bin", "--home", place)[1]
        assert (said in shown) == vetted
        with Puppet(plan, HALF) as puppet:
            assert puppet.ask(place, records, "--model", path) == 0
        reports = wire.BitReports.FromString(puppet.answers[0].batch.body).reports
        assert np.unpackbits(np.frombuffer(reports, dtype=np.uint8)).sum() == (N if vetted else 1)


def test_allowing_shows_what_is_allowed_and_asks(tmp_path: Path) -> None:
    """`allow` shows the key or digest, changes nothing without a yes, and keeps the policy's
    comments."""
    place = Home(tmp_path / "home")
    place.create()
    before = place.policy_file.read_text()
    path, name = written(tmp_path, first_feature())
    code, shown = client("allow", "aggregator", PUBLIC.hex(), "--home", place.folder)
    assert (code, PUBLIC.hex() in shown, place.policy_file.read_text() == before) == (1, True, True)
    assert client("allow", "aggregator", PUBLIC.hex(), "--home", place.folder, "--yes")[0] == 0
    assert client("allow", "model", path, "--vetted", "--home", place.folder, "--yes")[0] == 0
    assert client("allow", "model", "ff" * 32, "--home", place.folder, "--yes")[0] == 0
    assert client("allow", "model", "nothing", "--home", place.folder, "--yes")[0] == 2
    policy = place.policy()
    assert policy.aggregators == {PUBLIC}
    assert policy.models == {name, b"\xff" * 32}
    assert policy.vetted_models == {name}
    assert [line for line in before.splitlines() if line.startswith("#")] == [
        line for line in place.policy_file.read_text().splitlines() if line.startswith("#")
    ]


def test_a_backup_travels_by_command(tmp_path: Path) -> None:
    """`restore` into an empty folder brings every spend; into a ledger that knows more than the
    backup it takes none away."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    assert client("backup", tmp_path / "early", "--home", place)[0] == 0
    with Puppet(TRAINING, ROUND) as puppet:
        assert puppet.ask(place, records) == 0
    assert client("backup", tmp_path / "late", "--home", place)[0] == 0
    assert client("restore", tmp_path / "early", "--home", place, "--yes")[0] == 0
    assert Home(place).ledger().spent_by_record() == (N, 4.0)
    code, shown = client("restore", tmp_path / "late", "--home", tmp_path / "new", "--yes")
    assert (code, datetime.now(UTC).strftime("%Y-%m-%d") in shown) == (0, True)
    assert Home(tmp_path / "new").ledger().spent_by_record() == (N, 4.0)
