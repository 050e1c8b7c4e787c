"""The report of a federation: what it concludes, and that it shows every campaign."""

from pathlib import Path
from typing import Any

import pytest

from confide.simulation.federation.findings import Findings, falls_short, interval
from confide.simulation.federation.report import write_report
from tests.support.servers.browser import browser
from tests.support.servers.pages import needs_browser

N = 1_000


def row(name: str, **values: Any) -> dict[str, Any]:
    """A campaign's row as the server app writes it."""
    owner = {"owner": "<first>", "records": 500, "test_records": N, "coverage": 0.9, "mean_size": 3}
    return {
        "campaign": name,
        "channel": "bit",
        "epsilon": 2.0,
        "delta": 0.1,
        "n": 500,
        "threshold": 0.9,
        "level": 0.9,
        "kind": "PAC",
        "coverage": 0.91,
        "mean_size": 4.0,
        "reason": None,
        "randomness": "operating system",
        "owners": [owner],
    } | values


PLAIN = row("non-private", channel=None, epsilon=None, kind="marginal", mean_size=3.0)
TRIVIAL = row("poor", threshold=1.0, coverage=1.0, mean_size=26.0, reason="too few reports")
TRAINING = {
    "campaign": "training",
    "epsilon": 3.99,
    "delta": 1e-6,
    "accuracy": 0.612,
    "terms": {"architecture": "linear"},
    "owners": [9, 10],
}


def test_the_conclusion_names_the_best_of_each_promise() -> None:
    """The trivial campaign is never the best, nor is calibration without privacy."""
    found = Findings(
        [
            PLAIN,
            TRIVIAL,
            row("good"),
            row("worse", mean_size=5.0),
            row("mean", kind="marginal", mean_size=3.5),
            TRAINING,
        ]
    )
    said = found.conclusion()
    assert found.status == "3 of 4 campaigns give useful sets"
    assert said[0].startswith("good is the best with coverage 0.9 promised except with probability")
    assert "mean set size 4.00, 3.00 without privacy" in said[0]
    assert said[1].startswith("mean is the best with coverage 0.9 promised on average")
    assert "no campaign covers less than it promised" in said[2]
    assert "accuracy 0.612 at epsilon 3.99" in said[3]
    assert len(said) == 4


@needs_browser
def test_all_columns_of_campaigns_are_seen_at_880_pixels(tmp_path: Path) -> None:
    """With the longest names that campaigns and mechanisms have, and large numbers."""
    long = {"channel": "rank-exponential", "n": 1_234_567, "mean_size": 1234.56, "kind": "marginal"}
    rows = [PLAIN, row("labels:class-conditional", **long), row("central:owner-noised", **long)]
    page = write_report(tmp_path, rows, alpha=0.1, about="about")
    with browser() as chromium:
        shown = chromium.new_page(viewport={"width": 880, "height": 800})
        shown.goto(page.as_uri())
        seen = "[...document.querySelectorAll('.scroll')].map(e => e.scrollWidth - e.clientWidth)"
        plot, campaigns, _ = shown.evaluate(seen)
        assert (plot, campaigns) == (0, 0)
        wide = shown.evaluate("document.querySelector('.campaigns').scrollWidth")
        assert 600 < wide <= 848


def test_a_promise_that_was_not_met_is_said() -> None:
    """Coverage below the promise by more than chance; seeded runs and intervals are named."""
    bad = row("bad", coverage=0.8, randomness="seeded (simulation only)", mean_width=2.5)
    found = Findings([bad, row("fair", coverage=0.895)])
    said = " ".join(found.conclusion())
    assert "less than promised is covered by bad (0.8000)." in said
    assert "fair" not in said
    assert "nothing in it is private" in said
    assert "mean interval width 2.50" in said
    assert found.status.startswith("SIMULATION ONLY")


@pytest.mark.parametrize(("covered", "short"), [(900, False), (875, False), (868, True)])
def test_only_what_chance_does_not_explain_falls_short(covered: int, short: bool) -> None:
    """Of 1,000 records, below 0.9 by three standard errors; the interval contains what it must."""
    assert falls_short(row("one", coverage=covered / N)) == short
    low, high = interval(covered / N, N)
    assert low < covered / N < high
    assert high - low == pytest.approx(4 * (covered / N * (1 - covered / N) / N) ** 0.5, rel=0.1)


def test_every_group_has_a_row_with_its_thresholds(tmp_path: Path) -> None:
    """Or with the reason why one is 1; campaigns that divide nothing by groups have no column."""
    few = {"name": "<west>", "threshold": 1.0, "reason": "too few reports"}
    one = row("labels:per-group", by="group", strata=[{"name": "north", "threshold": 0.9}, few])
    two = row("central", by="group", strata=[{"name": "north", "threshold": 0.75}, few])
    text = write_report(tmp_path, [PLAIN, one, two], alpha=0.1, about="about").read_text()
    assert "<th>labels:per-group</th><th>central</th>" in text
    assert "<td>north</td><td>0.9000</td><td>0.7500</td>" in text
    assert "<td>&lt;west&gt;</td><td>1: too few reports</td>" in text
    plain = write_report(tmp_path, [PLAIN], alpha=0.1, about="about").read_text()
    assert "<h2>Groups</h2>" not in plain


def test_the_page_shows_every_campaign_and_escapes_names(tmp_path: Path) -> None:
    page = write_report(tmp_path, [PLAIN, TRIVIAL, row("good"), TRAINING], alpha=0.1, about="a < b")
    text = page.read_text()
    for words in ("poor is trivial: too few reports", "0.612", "9 to 10", "predicts everything"):
        assert words in text
    assert "&lt;first&gt;" in text
    assert "<first>" not in text
    assert "a &lt; b" in text
    assert text.index("Conclusion") < text.index("<svg") < text.index("<h2>Campaigns")


def test_trainings_alone_make_a_page_too(tmp_path: Path) -> None:
    text = write_report(tmp_path, [TRAINING], alpha=0.1, about="x").read_text()
    assert "1 trained" in text
    assert "<svg" not in text


def test_owners_are_summed_up_and_many_of_them_are_folded(tmp_path: Path) -> None:
    """The extremes are named; 850 of 1,000 is below 0.9 beyond chance, 890 is not."""
    shares = {"west": 0.85, "east": 0.95, "north": 0.89, "none": None}
    owners = [
        {"owner": name, "records": 9, "test_records": 0}
        if share is None
        else {"owner": name, "records": 9, "test_records": N, "coverage": share, "mean_size": 3}
        for name, share in shares.items()
    ]
    assert Findings([row("one", owners=owners)]).spread() == [
        "one: coverage from 0.850 (west) to 0.950 (east); 1 of 3 owners below 0.9 by more than "
        "chance explains, but for 1 in 40."
    ]
    for count, opened in ((20, True), (21, False)):
        many = row("one", owners=[owners[0]] * count)
        text = write_report(tmp_path, [many], alpha=0.1, about="x").read_text()
        assert ("<details open>" in text) == opened
        assert f"All {count} owners" in text
