"""DPCP Figure 15: networks for images in MNIST's format, beside private split prediction."""

from collections.abc import Sequence

from confide.simulation.reproduce.target import (
    NO,
    PARTLY,
    YES,
    DataFile,
    Plot,
    Row,
    RunOptions,
    Statement,
    Target,
)

FOLDER = DataFile(
    name="mnist",
    what="a folder with train-images-idx3-ubyte and train-labels-idx1-ubyte, plain or .gz, of "
    "MNIST or a data set in its format",
)


def measured(asked: RunOptions) -> list[Row]:
    """Coverage and size of sets, every method on the same images."""
    from confide.simulation.reproduce.full_data.cells import averages
    from confide.simulation.reproduce.full_data.image_cells import image_cells

    cells = image_cells(asked.files[FOLDER.name])
    measures = {"coverage": "coverage", "set size": "mean_size"}
    return averages(cells, asked.kept, asked.trials, measures=measures)


def _smaller(rows: Sequence[Row]) -> tuple[str, str]:
    by = {(row["epsilon"], row["method"]): row["set size"] for row in rows}
    cells = [epsilon for epsilon, method in by if method == "dpcp"]
    won = [by[epsilon, "dpcp"] < by.get((epsilon, "pscp"), 10.0) for epsilon in cells]
    return (
        YES if won and all(won) else PARTLY if any(won) else NO,
        f"DPCP's sets are smaller than PSCP's at {sum(won)} of {len(won)} epsilons",
    )


TARGET = Target(
    name="dpcp-figure-15",
    of="DPCP Figure 15",
    shows="MNIST: coverage and set size over epsilon",
    takes="10 min",
    trials=2,
    trained=True,
    needs=(FOLDER,),
    run=measured,
    plot=Plot(x="epsilon", y=("coverage", "set size"), lines="method"),
    claims=(
        Statement(
            where="DPCP section 5",
            says="DPCP typically has smaller prediction sets than PSCP",
            answer=_smaller,
        ),
    ),
    differences=(
        "The paper trains a convolutional network; ours has one hidden layer of 32 units, 10 "
        "epochs and batches of 512.",
        "The paper says 20,000 images a class, which MNIST does not have; ours takes 20,000.",
    ),
)
