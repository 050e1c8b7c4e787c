"""A drawing of points and a level: SVG that needs nothing outside its page."""


def figure(drawing: str, caption: str) -> str:
    """A drawing with a sentence about it; nothing if there is no drawing."""
    if not drawing:
        return ""
    return f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"


def scatter(points: list[tuple[float, float, bool]], *, line: float, x: str, y: str) -> str:
    """Draw points (filled if they hold) and a level, without any style."""
    if not points:
        return ""
    # Points keep off the labels of the axis by more than their radius.
    width, height, pad, inset = 560, 260, 46, 12
    xs, ys = [point[0] for point in points], [point[1] for point in points] + [line]
    low_x, high_x, low_y, high_y = min(xs), max(xs), min(ys), max(ys)
    span_x, span_y = (high_x - low_x) or 1.0, (high_y - low_y) or 1.0

    def place(u: float, v: float) -> tuple[float, float]:
        return (
            pad + inset + (width - 2 * (pad + inset)) * (u - low_x) / span_x,
            height - pad - (height - 2 * pad) * (v - low_y) / span_y,
        )

    dots = "".join(
        f'<circle cx="{place(u, v)[0]:.1f}" cy="{place(u, v)[1]:.1f}" r="5" '
        f'fill="{"#28c" if good else "none"}" stroke="#28c" stroke-width="2"/>'
        for u, v, good in points
    )
    level = place(low_x, line)[1]
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{y} against {x}" '
        f'font-size="12" fill="currentColor"><line x1="{pad}" x2="{width - pad}" y1="{level:.1f}" '
        f'y2="{level:.1f}" stroke="#a00"/><text x="{width - pad}" y="{level - 4:.1f}" '
        f'text-anchor="end" fill="#a00">{line:.4g}</text>{dots}<text x="{width / 2}" '
        f'y="{height - 8}" text-anchor="middle">{x}: {low_x:.3g} to '
        f"{high_x:.3g}</text>"
        f'<text x="12" y="{height / 2}" text-anchor="middle" transform="rotate(-90 12 '
        f'{height / 2})">{y}</text><text x="{pad - 4}" y="{pad}" '
        f'text-anchor="end">{high_y:.3g}</text><text x="{pad - 4}" y="{height - pad}" '
        f'text-anchor="end">{low_y:.3g}</text></svg>'
    )
