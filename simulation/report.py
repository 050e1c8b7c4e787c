"""A federation's outcome as files: one JSON for each campaign, a plot, and a page."""

import html
import io
from pathlib import Path
from typing import Any

from confide.aggregator.campaigns.summary import COLUMNS, cells, notes, owner_cells
from confide.protocol.terminal import check_installed

# Said before a federation runs for minutes. It is loaded for the plot only.
check_installed("matplotlib")

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Confide: simulated federation</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; }}
th, td {{ padding: .3rem .7rem; border-bottom: 1px solid #ccc; text-align: left; }}
svg {{ max-width: 100%; height: auto; }}
</style>
<h1>Simulated federation</h1>
<p>{about}</p>
<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
<ul>{notes}</ul>
<p>Promised is guaranteed coverage: PAC but for the failure probability over calibration,
marginal on average over it.
Coverage
and set size are measured on records that took no part. Randomness: {randomness}.</p>
{plot}
<h2>Owners</h2>
<p>Coverage / mean set size on each owner's test records at the published threshold: a diagnostic of
this simulation. What is promised is for all records together.</p>
<table><thead><tr>{owners_head}</tr></thead><tbody>{owners}</tbody></table>
</html>
"""


def write_report(folder: Path, rows: list[dict[str, Any]], *, alpha: float, about: str) -> Path:
    """Write set-sizes.svg and report.html into the folder; returns the page."""
    plot, (owners_head, *owners) = _plot(rows, alpha), owner_cells(rows)
    (folder / "set-sizes.svg").write_text(plot)
    page = folder / "report.html"
    page.write_text(
        PAGE.format(
            about=html.escape(about),
            head="".join(f"<th>{name}</th>" for name in COLUMNS),
            body="".join(_table_row(cells(row)) for row in rows),
            notes="".join(f"<li>{html.escape(note)}</li>" for note in notes(rows)),
            randomness=html.escape(rows[-1]["randomness"]),
            plot=plot[plot.index("<svg") :],
            owners_head="".join(f"<th>{html.escape(name)}</th>" for name in owners_head),
            owners="".join(map(_table_row, owners)),
        )
    )
    return page


def _table_row(cells_: list[str]) -> str:
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells_) + "</tr>"


def _plot(rows: list[dict[str, Any]], alpha: float) -> str:
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9, 0.6 * len(rows) + 1.6), sharey=True, layout="constrained"
    )
    names = [row["campaign"] for row in rows]
    left.barh(names, [row["coverage"] for row in rows], color="tab:blue")
    left.axvline(1 - alpha, color="black", linewidth=1)
    left.set(xlim=(max(0.0, 1 - 3 * alpha), 1), xlabel="test coverage (line: target)")
    left.invert_yaxis()
    right.barh(names, [row["mean_size"] for row in rows], color="tab:orange")
    right.set(xlabel="mean set size")
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    plt.close(figure)
    return drawn.getvalue()
