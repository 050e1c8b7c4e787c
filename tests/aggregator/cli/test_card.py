import json
from dataclasses import replace
from pathlib import Path

import pytest

from confide.protocol.cards.card import card_schema
from confide.protocol.cards.differences import differences
from tests.support.cards.cards import CONTRACT, KEY, command, make_card


def test_differences_have_a_direction() -> None:
    """More epsilon is weaker, more coverage is stronger; equal cards differ in nothing."""
    stronger = make_card(replace(CONTRACT, coverage=0.71, epsilon_calibration=9.0))
    lines = differences(make_card(), stronger)
    assert "formal/contract/coverage: 0.7 -> 0.71 (up by 0.01, stronger)" in lines
    assert "formal/contract/epsilon_calibration: 8.0 -> 9.0 (up by 1, weaker)" in lines
    assert differences(make_card(), make_card()) == []


CONTRACT_FILE = """
name = "test"
[contract]
coverage = 0.7
beta = 1e-3
epsilon_train = 4.0
epsilon_calibration = 8.0
delta = 1e-5
[grid]
mechanism = ["rank-exponential", "laplace-counts"]
gamma = 0.75
n = [1000, 4000]
bins = 100
epsilon_train = 4.0
delta_train = 1e-5
epsilon_calibration = [2.0, 8.0]
"""


def test_the_command_line_searches_shows_verifies_and_compares(tmp_path: Path) -> None:
    """Exit codes 0, 1 and 2 mean what the help says."""
    (tmp_path / "contract.toml").write_text(CONTRACT_FILE)
    (tmp_path / "key").write_bytes(KEY.private_bytes_raw())
    card, unsigned = tmp_path / "card.json", tmp_path / "unsigned.json"
    done = command("search", tmp_path / "contract.toml", "--out", card, "--key", tmp_path / "key")
    assert (done.exit_code, done.stderr) == (0, "")
    assert (
        command("verify", card, "--key", KEY.public_key().public_bytes_raw().hex()).exit_code == 0
    )
    assert command("search", tmp_path / "contract.toml", "--out", unsigned).exit_code == 0
    refused = command("verify", unsigned)
    assert refused.exit_code == 1
    assert "FAILS  signature" in refused.stdout
    assert command("diff", card, card).exit_code == 0
    assert command("diff", card, unsigned).exit_code in (0, 1)
    assert "## Contract" in command("show", card).stdout
    assert command("show", card, "--html", tmp_path / "card.html").exit_code == 0
    assert "<svg" in (tmp_path / "card.html").read_text()
    assert json.loads(command("schema").stdout) == card_schema()


def test_a_card_is_shown_under_the_key_that_the_reader_knows(tmp_path: Path) -> None:
    """Compared with it, whatever it is; one that nobody signed is shown as such where asked for."""
    signed, unsigned = tmp_path / "signed.json", tmp_path / "unsigned.json"
    card = make_card()
    signed.write_text(card.to_json())
    unsigned.write_text(replace(card, key=b"", signature=b"").to_json())
    mine, other = KEY.public_key().public_bytes_raw().hex(), "00" * 32
    for arguments, says in (
        ((signed, "--key", mine), "the key that was asked for"),
        ((signed, "--key", other), "DOES NOT VERIFY (signer)"),
        ((signed,), "compared with none"),
        ((unsigned,), "DOES NOT VERIFY (signature)"),
    ):
        done = command("show", *arguments)
        assert (done.exit_code, says in done.stdout) == (0, True), done.output
    accepted = command("show", unsigned, "--unsigned").stdout
    assert "NOBODY SIGNED IT" in accepted
    assert "DOES NOT VERIFY" not in accepted
    both = command("show", unsigned, "--unsigned", "--key", mine)
    assert (both.exit_code, both.output.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("coverage = 0.7", "coverage = 1.7"),
        ("beta = 1e-3", "beta = 0.3"),
        ("bins = 100", "bins = 1"),
        ("[grid]", "[net]"),
        ("gamma = 0.75", ""),
        ("laplace-counts", "laplace"),
        ("delta = 1e-5", "delta = -1"),
        ("name", "nome"),
        ('"test"', "test"),
        ("coverage = 0.7", 'coverage = "most"'),
        ("beta = 1e-3", ""),
    ],
)
def test_bad_contracts_are_one_line_and_exit_code_2(tmp_path: Path, old: str, new: str) -> None:
    """What was found, what is accepted and where; no card is written."""
    (tmp_path / "contract.toml").write_text(CONTRACT_FILE.replace(old, new, 1))
    done = command("search", tmp_path / "contract.toml", "--out", tmp_path / "card.json")
    assert done.exit_code == 2, done.stdout
    assert "contract.toml" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "card.json").exists()


@pytest.mark.parametrize("content", [None, "", "{", "{}", "\udcff"])
def test_unreadable_cards_are_exit_code_2(tmp_path: Path, content: str | None) -> None:
    """A missing file, half a file, something else."""
    if content is not None:
        (tmp_path / "card.json").write_text(content, encoding="utf-8", errors="surrogateescape")
    for action in ("verify", "show"):
        done = command(action, tmp_path / "card.json")
        assert done.exit_code == 2
        assert "card.json" in done.stderr
