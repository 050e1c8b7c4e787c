"""The launchers of a pinned node."""

import subprocess
from pathlib import Path

import pytest

from confide.client.transport.pinned_launcher import REFUSED_COMMANDS, bundle_hash, pin
from confide.protocol.errors import BadInput
from tests.support.repository.places import ROOT


def test_launchers_of_other_tasks_refuse(tmp_path: Path) -> None:
    """Whatever else a node is asked to start, it does not; a hash that is none is not taken."""
    pin(tmp_path, ["0" * 64])
    for name in REFUSED_COMMANDS:
        done = subprocess.run(
            [tmp_path / name], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
        )
        assert done.returncode == 1
        assert "nothing but its own client app" in done.stderr
    with pytest.raises(BadInput, match="64 hexadecimal digits"):
        pin(tmp_path, ["short"])
    with pytest.raises(BadInput, match=r"no pyproject\.toml"):
        bundle_hash(tmp_path)
