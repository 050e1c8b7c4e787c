"""Pictures of points against a level, as cards and the page show them."""

import re

from confide.protocol.cards.scatter import scatter


def test_no_point_touches_the_labels_of_the_axis() -> None:
    """The first point lies right of where the labels end, and the last inside the picture."""
    drawn = scatter([(1.0, 0.2, True), (2.0, 0.9, False)], line=0.5, x="round", y="threshold")
    circles = re.findall(r'<circle cx="([\d.]+)" cy="[\d.]+" r="(\d+)"', drawn)
    edges = [(float(x) - float(r), float(x) + float(r)) for x, r in circles]
    labels = [float(x) for x in re.findall(r'<text x="(\d+)" y="\d+" text-anchor="end">', drawn)]
    assert len(edges) == len(labels) == 2
    assert min(low for low, _ in edges) > max(labels) + 4
    assert max(high for _, high in edges) < 560
