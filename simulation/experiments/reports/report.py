"""The report of an experiment: one page with everything in it, and its pictures as files."""

import html
import re
from pathlib import Path
from typing import Any

from confide.protocol.cards.page import STYLE
from confide.protocol.files import make_folder, write_whole
from confide.simulation.experiments.reports.pictures import figures, rendered
from confide.simulation.experiments.reports.summary import (
    CellSummary,
    share_interval,
    summaries,
    text,
)
from confide.simulation.experiments.results import Results, name_of

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}
body {{ max-width: 80rem; }}
p {{ max-width: 60rem; }}
.scroll {{ overflow-x: auto; }}
.scroll table {{ font-size: .9rem; }}
.scroll td, .scroll th {{ display: table-cell; width: auto; white-space: nowrap;
  padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ccc; }}
.scroll th {{ white-space: normal; overflow-wrap: normal; }}
.scroll tr {{ display: table-row; }}
.scroll svg {{ width: auto; max-width: 100%; height: auto; min-width: 30rem; }}
</style>
<h1>{title}</h1>
<p>{about}</p>
{pictures}
<h2>Cells</h2>
<p>Means of the trials with 95 % confidence intervals. Below: trials whose coverage on the test
records was below the level they certified; a PAC promise allows the failure probability of them.
Owner: the mean, over trials, of the least coverage of any owner, which nothing promises. The
epsilon with a shuffler only holds for campaigns that went through one, in their smallest
round.</p>
<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>
{reasons}
<h2>Where this comes from</h2>
<p>{provenance}</p>
</html>
"""
HEAD = [
    *("population", "n", "method", "score", "epsilon", "exact epsilon"),
    *("epsilon, with a shuffler only", "level", "coverage", "below", "owner", "mean size"),
    *("trivial", "trials"),
]


def write_report(results: Results, folder: Path) -> Path:
    """Write report.html, report.pdf and a PNG for every population; return the page."""
    from matplotlib.backends.backend_pdf import PdfPages

    make_folder(folder)
    cells = summaries(results.rows)
    drawn = figures(cells)
    pictures = []
    with PdfPages(folder / "report.pdf", metadata={"CreationDate": None}) as pages:
        for name, figure in drawn.items():
            pages.savefig(figure)
            write_whole(folder / f"report-{_file_name(name)}.png", rendered(figure, "png"))
            svg = rendered(figure, "svg").decode()
            said = f"Coverage, size, level, privacy and share of trivial campaigns on {name}"
            picture = svg[svg.index("<svg") :].replace(
                "<svg ", f'<svg role="img" aria-label="{html.escape(said)}" ', 1
            )
            pictures.append(f'<h2>{html.escape(name)}</h2><div class="scroll">{picture}</div>')
    page = folder / "report.html"
    write_whole(page, _page(results, cells, pictures))
    return page


def _page(results: Results, cells: list[CellSummary], pictures: list[str]) -> str:
    given = results.about["experiment"]
    title = given["title"] or "Experiment"
    about = (
        f"{len(cells)} cells, {len(results.rows)} of {len(results.about['cells'])} x "
        f"{given['trials']} trials have run, {_where(given)}; alpha {given['alpha']:g}, failure "
        f"probability {given['failure_probability']:g}, seed {given['seed']}."
    )
    reasons = [
        f"<li>{html.escape(_place(one))}: {html.escape(str(one.reason))}</li>"
        for one in cells
        if one.reason
    ]
    return PAGE.format(
        title=html.escape(title),
        style=STYLE,
        about=html.escape(about),
        pictures="".join(pictures),
        head="".join(f"<th>{name}</th>" for name in HEAD),
        body="".join(_row(one) for one in cells),
        reasons=(
            "<h2>Reasons</h2><p>The most frequent reason of campaigns that are trivial or could "
            f"not be run.</p><ul>{''.join(reasons)}</ul>"
            if reasons
            else ""
        ),
        provenance=html.escape(provenance(results)),
    )


def provenance(results: Results) -> str:
    """One sentence about the code and the experiment that the rows come from."""
    versions = sorted({str(row["version"]) for row in results.rows})
    commits = sorted({str(row["commit"]) or "no checkout" for row in results.rows})
    return (
        f"Experiment {name_of(results.about)[:16]}, version {', '.join(versions)}, commit "
        f"{', '.join(commits)}; every row has its seeds."
    )


def _row(one: CellSummary) -> str:
    row = one.row
    below = share_interval(one.below, one.trials)
    cells: list[Any] = [row["population"], f"{row['n']:,}", row["method"], row["score"]]
    cells += ["none" if row["epsilon"] is None else f"{row['epsilon']:g}", text(one.epsilon, 4)]
    cells += [text(one.shuffled), text(one.level), text(one.coverage)]
    cells += [f"{one.below} of {one.trials}" + (f" (to {below.high:.2f})" if below else "")]
    cells += [text(one.least_owner), text(one.size, 2)]
    cells += ["-" if one.trivial is None else f"{one.trivial.middle:.0%}", one.trials]
    return f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in cells)}</tr>"


def _place(one: CellSummary) -> str:
    row = one.row
    budget = "no privacy" if row["epsilon"] is None else f"epsilon {row['epsilon']:g}"
    return f"{row['population']}, n {row['n']:,}, {row['method']} {row['score']}, {budget}"


def _where(given: dict[str, Any]) -> str:
    return {"flower": "over Flower", "client": "owners in process"}.get(
        given["where"], "users in process"
    )


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)
