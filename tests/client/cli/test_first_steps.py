import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from confide.aggregator.keys import create_keys
from confide.client.policy import read_policy
from confide.client.policy_template import TEMPLATE
from confide.protocol.errors import BadInput
from tests.support.owners.owners import PLAN, PUBLIC, signed
from tests.support.repository.places import ROOT


def client(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "confide.client", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )


def test_the_owner_is_led_from_init_to_explain(tmp_path: Path) -> None:
    """init writes a policy that reads, doctor finds all in order, explain refuses a stranger's plan
    and then explains it."""
    home, plan = tmp_path / "home", tmp_path / "plan.bin"
    assert client("init", "--home", home).returncode == 0
    assert (home / "secret.key").stat().st_mode & 0o077 == 0
    secret = (home / "secret.key").read_bytes()
    assert "kept" in client("init", "--home", home).stdout
    assert (home / "secret.key").read_bytes() == secret
    assert client("doctor", "--home", home).returncode == 0
    plan.write_bytes(signed(PLAN))
    assert client("allow", "column", "ward", "--home", home, "--yes").returncode == 0
    assert read_policy(home / "policy.toml").columns_may_leave == {"ward"}
    stranger = client("explain", plan, "--home", home)
    assert stranger.returncode == 1
    assert PUBLIC.hex() in stranger.stdout
    policy = home / "policy.toml"
    assert client("allow", "aggregator", PUBLIC.hex(), "--home", home, "--yes").returncode == 0
    assert client("allow", "model", PLAN.model.hex(), "--home", home, "--yes").returncode == 0
    refused = client("explain", plan, "--home", home)
    assert refused.returncode == 1
    assert "its epsilon is above `epsilon_per_campaign`" in refused.stdout
    policy.write_text(
        policy.read_text().replace("epsilon_per_campaign = 2.0", "epsilon_per_campaign = 4.0")
    )
    allowed = client("explain", plan, "--home", home)
    assert allowed.returncode == 0
    assert "one bit" in allowed.stdout
    assert "Under your policy this plan is allowed." in allowed.stdout
    status = client("status", "--home", home)
    assert "0 records have answered" in status.stdout


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("minimum_group = 20", "", "missing: minimum_group"),
        ("minimum_group = 20", "minimum_group = 0", "minimum_group is 0"),
        ("minimum_group = 20", "minimum_group = true", "minimum_group is True"),
        ("minimum_group = 20", "minimum_group = 20\nextra = 1", "unknown: extra"),
        ('methods = ["bits"]', 'methods = ["votes"]', "accepted: labels, bits"),
        ("aggregators = []", 'aggregators = ["zz"]', "64 hexadecimal digits"),
        ("aggregators = []", 'aggregators = ["00"]', "64 hexadecimal digits"),
        ("columns_may_leave = []", "columns_may_leave = [7]", "accepted are names of columns"),
        *(
            ("columns_may_leave = []", f'columns_may_leave = ["{name}"]', f"holds {name}; accepted")
            for name in ("label", "labels", "losses", "true0", "true12", "loss1", "ids", "person")
        ),
        ("epsilon_per_record = 4.0", "epsilon_per_record = 0.0", "epsilon is 0.0"),
        ("epsilon_per_record = 4.0", "epsilon_per_record = ", "cannot be read as TOML"),
    ],
)
def test_unusable_policies_are_refused_with_the_reason(
    old: str, new: str, says: str, tmp_path: Path
) -> None:
    """The message names the file and the clause."""
    path = tmp_path / "policy.toml"
    path.write_text(TEMPLATE.replace(old, new))
    with pytest.raises(BadInput, match=says) as refused:
        read_policy(path)
    assert str(path) in str(refused.value)


def test_a_home_that_is_not_there_is_exit_code_2(tmp_path: Path) -> None:
    """status without init says what to do, in one line."""
    run = client("status", "--home", tmp_path / "none")
    assert run.returncode == 2
    assert "confide-client init" in run.stderr
    assert run.stderr.count("\n") == 1


def test_half_a_set_of_certificates_is_not_completed(tmp_path: Path) -> None:
    """A key that does not belong to the certificate beside it would be worse than none: exit code
    2, nothing written."""
    create_keys(tmp_path / "new", address="localhost", now=datetime.now(UTC))
    assert len(list((tmp_path / "new").iterdir())) == 4
    assert create_keys(tmp_path / "new", address="localhost", now=datetime.now(UTC)) == []
    (tmp_path / "new" / "server.pem").unlink()
    with pytest.raises(BadInput, match=r"no server\.pem"):
        create_keys(tmp_path / "new", address="localhost", now=datetime.now(UTC))
