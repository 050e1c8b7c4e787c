"""A drawing of the search for a threshold: one row for each round, each to its own scale."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from confide.aggregator.web.search_progress import Bracket, Point, bracket

WIDTH, LEFT, RIGHT, ROW, TOP = 640.0, 70.0, 12.0, 62.0, 22.0
# Thresholds are drawn by their logit, which spreads those near 1; values beyond this are drawn at
# the end.
REACH = 9.0


@dataclass(frozen=True)
class Row:
    """A round: its thresholds, the brackets before and after it, and the range that is drawn."""

    number: int
    points: Sequence[Point]
    before: Bracket
    after: Bracket

    @property
    def ends(self) -> tuple[float, float]:
        places = [_logit(point.threshold) for point in self.points]
        # The range holds the bracket before the round, unless a first round of many thresholds
        # covers it anyway.
        if self.number or len(places) == 1:
            places += [_logit(self.before.low), _logit(self.before.high)]
        pad = max(0.02, 0.04 * (max(places) - min(places)))
        return min(places) - pad, max(places) + pad

    @property
    def y(self) -> float:
        return TOP + ROW * self.number + 14

    def x(self, q: float) -> float:
        low, high = self.ends
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max((_logit(q) - low) / (high - low), 0.0), 1.0)


def search_picture(points: Sequence[Point], *, level: float, threshold: float | None) -> Markup:
    """Every threshold asked, its answer, and the bracket after each round.

    The certified threshold is drawn too if there is one.
    """
    rows: list[Row] = []
    for number in sorted({point.round for point in points}):
        known = bracket([point for point in points if point.round <= number])
        mine = [point for point in points if point.round == number]
        rows.append(Row(len(rows), mine, rows[-1].after if rows else Bracket(0.0, 1.0), known))
    if not rows:
        return Markup("")
    parts = [_funnel(row, below) for row, below in itertools.pairwise(rows)]
    parts += [_row(row, level, threshold, last=row is rows[-1]) for row in rows]
    found, height = rows[-1].after, TOP + ROW * len(rows)
    label = (
        f"Thresholds asked in {len(rows)} rounds; the bracket is now {found.low:.4f} to "
        f"{found.high:.4f}"
    )
    return Markup(
        f'<svg class="search" viewBox="0 0 {WIDTH:g} {height:g}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )


def _funnel(row: Row, below: Row) -> str:
    """From the bracket of a round to the same thresholds in the next."""
    corners = [(row.x(row.after.low), row.y), (row.x(row.after.high), row.y)]
    corners += [(below.x(row.after.high), below.y), (below.x(row.after.low), below.y)]
    return f'<polygon class="funnel" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}"/>'


def _row(row: Row, level: float, threshold: float | None, *, last: bool) -> str:
    low, high = (1 / (1 + math.exp(-end)) for end in row.ends)
    parts = [
        f'<text x="0" y="{row.y + 4:.1f}">round {row.points[0].round + 1}</text><line class="axis" '
        f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{row.y:.1f}" y2="{row.y:.1f}"/><text class="end" '
        f'x="{LEFT}" y="{row.y + 19:.1f}">{low:.4g}</text><text class="end" x="{WIDTH - RIGHT}" '
        f'y="{row.y + 19:.1f}" text-anchor="end">{high:.4g}</text>'
    ]
    if any(point.coverage is not None for point in row.points):
        left, right = row.x(row.after.low), row.x(row.after.high)
        parts.append(
            f'<path class="bracket" d="M{left:.1f} {row.y - 8:.1f}v-5H{right:.1f}v5"><title>after '
            f"this round: between {row.after.low:.4f} and {row.after.high:.4f}</title></path>"
        )
    if threshold is not None and row.ends[0] <= _logit(threshold) <= row.ends[1]:
        at = row.x(threshold)
        parts.append(
            f'<line class="certified" x1="{at:.1f}" x2="{at:.1f}" y1="{row.y - 18:.1f}" '
            f'y2="{row.y + 10:.1f}"/>'
        )
        if last:
            side = "end" if at > WIDTH - 40 else "start" if at < LEFT + 40 else "middle"
            parts.append(
                f'<text class="certified" x="{at:.1f}" y="{row.y - 21:.1f}" '
                f'text-anchor="{side}">{threshold:.4f}</text>'
            )
    return "".join([*parts, *(_mark(point, row, level) for point in row.points)])


def _mark(point: Point, row: Row, level: float) -> str:
    known, at = point.coverage is not None and point.error is not None, f"{point.threshold:.4f}"
    said = (
        f"{at}: coverage {point.coverage:.3f} ± {point.error:.3f} of {point.answers} answers"
        if known
        else f"{at}: asked"
    )
    side = "asked" if point.coverage is None else "above" if point.coverage >= level else "below"
    size = 4.5 if len(row.points) <= 24 else 2.0
    return (
        f'<circle class="{side}" cx="{row.x(point.threshold):.1f}" cy="{row.y:.1f}" '
        f'r="{size}"><title>{said}</title></circle>'
    )


def _logit(q: float) -> float:
    edge = 1 / (1 + math.exp(REACH))
    q = min(max(q, edge), 1 - edge)
    return math.log(q / (1 - q))
