import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from confide.simulation.cli import app
from confide.simulation.experiments.reports.pictures import figures
from confide.simulation.experiments.reports.summary import (
    mean_interval,
    share_interval,
    summaries,
)
from confide.simulation.experiments.results import RESULTS, read_results
from tests.support.programs.experiments import CELLS, SMALL, run, written


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a small experiment."""
    folder = tmp_path_factory.mktemp("results")
    run(written(folder), folder / "out")
    return folder / "out"


def confide(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_a_report_is_one_page_with_pictures_beside_it(results: Path, tmp_path: Path) -> None:
    """Every cell and measure is on the page, which loads nothing; the same results give the same
    bytes."""
    first, second = (confide("report", results, "--out", tmp_path / name) for name in "ab")
    assert (first.exit_code, second.exit_code) == (0, 0), first.stderr
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["report-even.png", "report-skewed.png", "report.html", "report.pdf"]
    for name in names:
        one, other = ((tmp_path / folder / name).read_bytes() for folder in "ab")
        assert one == other, name
    page = (tmp_path / "a" / "report.html").read_text()
    assert page.count("<tr>") == CELLS + 1
    assert not re.search(r'(src|href)="(?!#)', page)
    for word in ("coverage", "mean set size", "certified level", "exact epsilon", "trivial"):
        assert word in page
    # An epsilon that nobody has without a shuffler never stands without these words.
    assert "<th>epsilon, with a shuffler only</th>" in page
    assert not re.search(r"shuffled", page)
    assert page.count("with a shuffler only") >= 2
    assert (tmp_path / "a" / "report.pdf").read_bytes().startswith(b"%PDF")


def test_every_name_of_the_legend_is_in_the_picture(results: Path) -> None:
    """Also in a narrow one, of a single size."""
    for figure in figures(summaries(read_results(results).rows)).values():
        figure.draw_without_rendering()
        box = figure.legends[0].get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


def test_of_reasons_that_are_as_frequent_the_first_stands(results: Path) -> None:
    """Whatever the process: the same results give the same page in every one."""
    row, found = read_results(results).rows[0], set[bool]()
    for name in map(str, range(20)):
        rows = [row | {"trial": trial, "reason": name * (trial + 1)} for trial in range(9)]
        found.add(summaries(rows)[0].reason == name)
    assert found == {True}


def test_a_title_cannot_leave_its_place(tmp_path: Path) -> None:
    """What a file says is text on the page."""
    text = SMALL.replace("bits against labels", "<script>alert(1)</script>")
    text = text.replace("trials = 5", "trials = 1").replace("populations.even", 'populations."<b>"')
    run(written(tmp_path, text), tmp_path / "out")
    assert confide("report", tmp_path / "out").exit_code == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<script>" not in page
    assert "<b>" not in page


def test_the_same_results_have_no_difference(results: Path, tmp_path: Path) -> None:
    """The exit code tells."""
    shutil.copy(results / RESULTS, tmp_path / "copy.parquet")
    found = confide("diff", results, tmp_path / "copy.parquet")
    assert (found.exit_code, found.stdout) == (
        0,
        f"{CELLS} of {CELLS} cells have the same trials\n",
    )


def test_a_difference_is_named(results: Path, tmp_path: Path) -> None:
    """Settings, cells of one side, and by how much measures of the same cells differ."""
    text = SMALL.replace("seed = 3", "seed = 4").replace("budgets = [2, 8.0]", "budgets = [2]")
    run(written(tmp_path, text), tmp_path / "out")
    found = confide("diff", results, tmp_path / "out")
    assert found.exit_code == 1
    assert "setting budgets: [2.0, 8.0] in A, [2.0] in B" in found.stdout
    assert "setting seed: 3 in A, 4 in B" in found.stdout
    assert found.stdout.count("only in A: ") == 6
    assert "5 of 5 trials differ" in found.stdout
    assert re.search(r"coverage B - A: -?0\.\d{4} ± 0\.\d{4}", found.stdout)
    assert found.stdout.endswith(f"0 of {CELLS} cells have the same trials\n")


@pytest.mark.parametrize("command", ["report", "diff"])
def test_what_is_no_result_is_refused(tmp_path: Path, command: str) -> None:
    """A file of another kind, and one that does not exist."""
    (tmp_path / "text.parquet").write_text("text")
    for name in ("text.parquet", "none.parquet"):
        given = [tmp_path / name] * (2 if command == "diff" else 1)
        found = confide(command, *given)
        assert found.exit_code == 2
        assert "accepted is the folder of a `confide run`" in found.stderr


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Out of 2,000 draws each, 95 % to 4 standard deviations; exact ones at least that often."""
    rng = np.random.default_rng(0)
    means = [mean_interval(rng.normal(5, 1, 8).tolist()) for _ in range(2_000)]
    held = sum(found is not None and found.low <= 5 <= found.high for found in means)
    assert abs(held / 2_000 - 0.95) < 0.02
    shares = [share_interval(int(rng.binomial(20, 0.1)), 20) for _ in range(2_000)]
    assert sum(found is not None and found.low <= 0.1 <= found.high for found in shares) >= 1_860
