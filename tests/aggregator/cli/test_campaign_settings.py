"""Settings of campaigns that are refused, each by its name."""

import math
from pathlib import Path

import pytest

from confide.aggregator.keys import SIGNING_KEY
from confide.aggregator.storage.stored_campaign import Settings
from confide.protocol.errors import BadInput
from tests.support.servers.operating import create, required, said
from tests.support.servers.servers import Place, aggregator


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("round-seconds", '"86400"'),
        ("round-seconds", "inf"),
        ("round-seconds", "nan"),
        ("round-seconds", "1e12"),
        ("round-seconds", "0"),
        ("owners", '"x"'),
        ("owners", "1.5"),
        ("owners", "-1"),
        ("minimum-owners", "0"),
        ("enough", "true"),
        ("enough", "1e3"),
        ("labels", "2.5"),
        ("labels", "1"),
        ("title", '["x"]'),
        ("title", '"a\\nb"'),
        ("campaign", "1"),
        ("days", "1e9"),
        ("days", '"1"'),
        ("days", "0"),
        ("records", "100000000000000000000"),
        ("records", "0x" + "f" * 5000),
        ("model", '"zz"'),
        ("model", f'"{"00" * 31}"'),
        ("model", "1"),
        ("model", '""'),
        ("score", "[]"),
        ("channel", "{}"),
        ("epsilon", '"2"'),
        ("epsilon", "nan"),
        ("alpha", "1.5"),
        ("failure-probability", "inf"),
        ("failure-probability", "0"),
        ("max-corrupt", "-1"),
        ("minimum-reports", "0.5"),
        ("bins", "1979-05-27"),
        ("beta", "true"),
        ("privacy-delta", '""'),
        ("mechanism", "0"),
    ],
)
def test_a_setting_that_cannot_be_is_named(name: str, value: str, place: Place) -> None:
    """Of another type, not finite or out of bounds: one line that names it and what is accepted,
    and nothing is stored."""
    code, complaint = create(place, **{name: value})
    assert (code, complaint.count("\n")) == (2, 1)
    assert complaint.startswith(f"error: {name} is ")
    assert "; accepted is " in complaint
    assert place.store.campaigns() == []


def test_settings_within_bounds_are_taken(place: Place) -> None:
    """Whole numbers stand for numbers, and what is left out has its default."""
    assert create(place) == (0, "")
    assert create(
        place, epsilon="2", days="3650", round_seconds="315360000", owners="40", title='"autumn"'
    ) == (0, "")
    assert sorted(one.settings.owners for one in place.store.campaigns()) == [0, 40]
    with pytest.raises(BadInput, match="round-seconds is inf"):
        Settings(round_seconds=math.inf)


def test_delta_is_not_mistaken_for_the_privacy_delta(place: Place) -> None:
    """The old name of the failure probability is refused in a file and as an option, with both
    names that it could mean."""
    code, complaint = create(place, delta="0.1")
    assert (code, complaint.count("\n")) == (2, 1)
    assert "delta is now failure-probability" in complaint
    assert "privacy-delta" in complaint
    option = said(
        "campaign",
        "create",
        "--key",
        place.keys / SIGNING_KEY,
        "--db",
        place.url,
        "--delta",
        "0.1",
        *required(),
    )
    assert option == (2, complaint)
    assert place.store.campaigns() == []


@pytest.mark.parametrize(
    ("name", "value", "campaign"),
    [
        ("bins", "64", "bits:one-shot"),
        ("beta", "0.01", "labels:certified"),
        ("channel", '"k-rr"', "bits:certified"),
        ("privacy-delta", "1e-6", "bits:certified"),
        ("failure-probability", "0.2", "central:trusted"),
        ("max-corrupt", "0", "central:trusted"),
        ("mechanism", '"gaussian-search"', "central:owner-noised"),
    ],
)
def test_a_setting_of_another_method_is_refused(
    name: str, value: str, campaign: str, place: Place
) -> None:
    """What the campaign would not use is named with the methods that it belongs to, and nothing is
    stored."""
    code, complaint = create(place, campaign=f'"{campaign}"', **{name: value})
    assert (code, complaint.count("\n")) == (2, 1)
    # A failure probability belongs to guarantees, and trusted counts promise an average.
    asked = f"{campaign}, central:marginal" if name == "failure-probability" else campaign
    assert complaint.startswith(
        f"error: {name} is given, which {asked} does not use; it belongs to "
    )
    assert place.store.campaigns() == []


def test_a_file_that_is_no_toml_is_refused(place: Place) -> None:
    """Also where it is a number that Python does not read."""
    for value in ("9" * 5000, "]"):
        code, complaint = create(place, records=value)
        assert (code, "cannot be read as TOML" in complaint) == (2, True)


def test_a_plan_that_its_procedure_does_not_accept_is_not_made(
    place: Place, tmp_path: Path
) -> None:
    """What would stop the campaign at its first step is said at once, with exit code 2, and nothing
    is stored."""
    text = (
        f'campaign = "central:trusted"\nlabels = 5\nmodel = "{"00" * 32}"\nrecords = 2000\nepsilon '
        "= 1e-5\n"
    )
    (tmp_path / "campaign.toml").write_text(text)
    key, db = ("--key", place.keys / SIGNING_KEY), ("--db", place.url)
    assert aggregator("campaign", "create", *key, *db, "--file", tmp_path / "campaign.toml") == (
        2,
        "",
    )
    assert place.store.campaigns() == []
