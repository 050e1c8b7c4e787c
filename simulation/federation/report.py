"""A federation's outcome as a page: the conclusion, every campaign, the owners, and a plot."""

import html
from pathlib import Path
from typing import Any

from confide.aggregator.campaigns.summary import cells, heads, notes, owner_cells
from confide.protocol.cards.page import STYLE
from confide.protocol.certificate import BY_GROUP
from confide.protocol.files import write_whole
from confide.simulation.federation.findings import Findings, reached

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Confide: simulated federation</title>
<style>{style}
.scroll {{ overflow-x: auto; }}
.scroll td, .scroll th {{ display: table-cell; width: auto; white-space: nowrap;
  padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ccc; }}
.scroll tr {{ display: table-row; }}
.campaigns {{ font-size: .875rem; }}
.campaigns th {{ vertical-align: bottom; }}
.scroll .campaigns th, .campaigns td:nth-child(-n+2) {{ white-space: normal; }}
.scroll .campaigns th, .scroll .campaigns td {{ padding-right: .6rem; overflow-wrap: normal; }}
.scroll svg {{ max-width: 60rem; min-width: 38rem; }}
@media print {{ .scroll {{ overflow: visible; font-size: 8pt; }} .scroll svg {{ min-width: 0; }} }}
</style>
<h1>Simulated federation</h1>
<p>{about}</p>
<section class="box{bad}" aria-label="Conclusion">
<p class="status">{status}</p>
<ul>{conclusion}</ul>
</section>
<div class="scroll">{plot}</div>
<h2>Campaigns</h2>
<div class="scroll"><table class="campaigns">
<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>
{groups}
{trained}
<p>Promised is guaranteed coverage: PAC but for the failure probability over calibration, band
so at many levels, marginal on average over it. Coverage and size are measured on records that took
no part; cards with all terms lie beside this page.</p>
<h2>Owners</h2>
<p>Coverage / mean size on each owner's test records at the published threshold, or at the owner's
own where it has one: a diagnostic of this simulation. Cards say whom their promise is for.</p>
{spread}
<details{opened}><summary>All {count} owners</summary><div class="scroll"><table>
<thead><tr>{owners_head}</tr></thead><tbody>{owners}</tbody></table></div></details>
</html>
"""
# Owners whose table is not folded.
MOST_SHOWN = 20
GROUPS = (
    '<h2>Groups</h2><div class="scroll"><table><thead><tr><th>threshold of group</th>{}</tr>'
    "</thead><tbody>{}</tbody></table></div>"
)
TRAININGS = (
    '<h2>Trainings</h2><div class="scroll"><table><thead><tr><th>training</th><th>network</th>'
    "<th>reached</th><th>epsilon</th><th>delta</th><th>rounds</th><th>owners a round</th></tr>"
    "</thead><tbody>{}</tbody></table></div>"
)


def write_report(folder: Path, rows: list[dict[str, Any]], *, alpha: float, about: str) -> Path:
    """Write set-sizes.svg and report.html into the folder; returns the page."""
    # Loads matplotlib, which takes a second.
    from confide.simulation.federation.plot import draw

    found = Findings(rows)
    plot = draw(found, target=1 - alpha) if found.calibrations else ""
    if plot:
        write_whole(folder / "set-sizes.svg", plot)
    owners_head, *owners = owner_cells(found.calibrations)
    page = folder / "report.html"
    write_whole(
        page,
        PAGE.format(
            style=STYLE,
            about=html.escape(about),
            bad=" bad" if found.simulation else "",
            status=html.escape(found.status),
            conclusion=_items([*found.conclusion(), *notes(found.calibrations)]),
            plot=plot[plot.index("<svg") :] if plot else "",
            head="".join(f"<th>{name}</th>" for name in heads(found.calibrations)),
            body="".join(_table_row(cells(row)) for row in found.calibrations),
            groups=_groups(found.calibrations),
            trained=_trainings(found.trainings),
            spread=f"<ul>{_items(found.spread())}</ul>",
            opened=" open" if len(owners) <= MOST_SHOWN else "",
            count=len(owners),
            owners_head="".join(f"<th>{html.escape(name)}</th>" for name in owners_head),
            owners="".join(map(_table_row, owners)),
        ),
    )
    return page


def _groups(rows: list[dict[str, Any]]) -> str:
    """The threshold of every group, or why it is 1, of the campaigns that divide records by it."""
    divided = [row for row in rows if row.get("by") == BY_GROUP]
    if not divided:
        return ""
    head = "".join(f"<th>{html.escape(row['campaign'])}</th>" for row in divided)
    each = zip(*(row["strata"] for row in divided), strict=True)
    body = [
        [
            parts[0]["name"],
            *(
                f"{one['threshold']:.4f}" if one["threshold"] < 1 else f"1: {one['reason']}"
                for one in parts
            ),
        ]
        for parts in each
    ]
    return GROUPS.format(head, "".join(map(_table_row, body)))


def _trainings(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    lines = [
        [
            str(row["campaign"]),
            str(row["terms"]["architecture"]),
            reached(row) if {"accuracy", "rmse"} & set(row) else "-",
            f"{row['epsilon']:.3f}",
            f"{row['delta']:g}",
            str(len(row["owners"])),
            f"{min(row['owners'])} to {max(row['owners'])}",
        ]
        for row in rows
    ]
    return TRAININGS.format("".join(map(_table_row, lines)))


def _items(lines: list[str]) -> str:
    return "".join(f"<li>{html.escape(line)}</li>" for line in lines)


def _table_row(cells_: list[str]) -> str:
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells_) + "</tr>"
