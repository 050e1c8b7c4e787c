"""Draw docs/set-size.svg: mean set size against epsilon on the embedded data.

Certified and published methods stand side by side.

Run with the project's environment: `python benchmarks/local/picture.py`. Seeded, so the picture can
be had again.
"""

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
from rich.progress import track

mpl.use("svg")
from matplotlib import pyplot as plt

from confide.simulation.data.population import embedded
from confide.simulation.evaluate.calibrated import Calibrated
from confide.simulation.evaluate.repeated import run_trials

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
LINES = {
    ("labels", "published-star"): ("tab:blue", "o", "--"),
    ("labels", "certified"): ("tab:blue", "o", "-"),
    ("bits", "published-star"): ("tab:orange", "s", "--"),
    ("bits", "certified"): ("tab:orange", "s", "-"),
}


def main() -> None:
    population = embedded()
    base = Calibrated(trials=20, seed=1)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    plain, _ = run_trials(population, replace(base, variant="non-private"))
    axes.axhline(
        plain["mean"]["mean_size"], color="black", linewidth=1, label="no privacy (marginal)"
    )
    for (method, variant), (color, marker, style) in track(LINES.items(), "campaigns"):
        sizes = []
        for epsilon in EPSILONS:
            result, _ = run_trials(
                population, replace(base, method=method, variant=variant, epsilon=epsilon)
            )
            sizes.append(result["mean"]["mean_size"])
        axes.plot(
            EPSILONS,
            sizes,
            color=color,
            marker=marker,
            linestyle=style,
            label=f"{method} {variant}",
        )
    axes.set(
        xscale="log", yscale="log", xlabel="local epsilon a record", ylabel="mean set size (of 26)"
    )
    axes.set_xticks(EPSILONS, [str(epsilon) for epsilon in EPSILONS])
    axes.set_yticks([3, 4, 6, 10, 16, 26], ["3", "4", "6", "10", "16", "26"])
    axes.minorticks_off()
    axes.set_title(
        "90 % coverage promised (PAC, delta 0.1), 10,000 calibration records", fontsize=10
    )
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    mpl.rcParams["svg.hashsalt"] = "confide"
    figure.savefig(Path(__file__).parents[2] / "docs" / "set-size.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
