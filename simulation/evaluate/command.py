"""`confide evaluate`: what a method would cost on one's own records."""

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from click.core import ParameterSource
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from confide.aggregator.campaigns.settings import FAILURE, check_used
from confide.aggregator.procedures.full_data import PUBLISHED_BUFFER, Stability
from confide.aggregator.quantiles.registry import DEFAULT
from confide.protocol.channels.registry import AUTO, LABEL_CHANNELS
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.methods.registry import local_variants
from confide.protocol.scores.registry import SCORES
from confide.protocol.simulated import SIMULATION_KEY
from confide.protocol.terminal import INTERRUPTED, clear_errors, columns
from confide.simulation.data.population import CLASSIFICATION, REGRESSION, lessons, predicted
from confide.simulation.evaluate.central import Central
from confide.simulation.evaluate.local import Setting
from confide.simulation.evaluate.trials import Repeated, evaluate, write_json

_LOCAL, _CENTRAL = tuple(local_variants()), ("central", "full-data")
METHODS = (*_LOCAL, *_CENTRAL)
# Options that only some methods have, or some variants of full-data.
BELONGS = {
    "--variant": (*_LOCAL, "full-data"),
    "--channel": _LOCAL,
    "--failure-probability": _LOCAL,
    "--max-corrupt": _LOCAL,
    "--mechanism": ("central",),
    "--privacy-delta": _CENTRAL,
    "--beta": _CENTRAL,
    "--bins": _CENTRAL,
    "--share": tuple(
        f"full-data:{name}" for name in ("certified", "dpcp", "scp-f", "scp-a", "differential")
    ),
    "--buffer": ("full-data:scp-f",),
    "--stability": ("full-data:scp-f",),
    "--feature-range": ("full-data",),
}
OF_TASKS = {"--score": (CLASSIFICATION,), "--range": (REGRESSION,)}
Renamed = Annotated[float | None, typer.Option("--delta", hidden=True)]


def given_options(context: typer.Context) -> list[str]:
    """The options that stand on the command line, by their long names."""
    written = ParameterSource.COMMANDLINE
    return [
        one.opts[0]
        for one in context.command.params
        if context.get_parameter_source(one.name or "") == written
    ]


def run_all(records: Any, settings: list[Any]) -> tuple[list[dict[str, Any]], bool]:
    """Evaluate each setting behind one progress bar (on a terminal's standard error only)."""
    console = Console(stderr=True)
    results, complete = [], True
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("trials", total=sum(setting.trials for setting in settings))
        for setting in settings:
            bar.update(task, description=f"{setting.method} {setting.variant}")
            result, complete = evaluate(records, setting, progress=lambda: bar.advance(task))
            results.append(result)
            if not complete:
                print(
                    f"interrupted: {len(result['trials'])} of {setting.trials} trials are kept",
                    file=sys.stderr,
                )
                break
    return results, complete


COLUMNS: dict[str, Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], str]] = {
    "method": lambda given, mean, std: (
        "non-private" if given["channel"] is None else f"{given['method']} {given['variant']}"
    ),
    "channel": lambda given, mean, std: given["channel"] or "-",
    "exact epsilon": lambda given, mean, std: (
        "-" if given["exact_epsilon"] is None else f"{given['exact_epsilon']:.4f}"
    ),
    "promised": lambda given, mean, std: (
        str(given["certificate"])
        if mean["certified_level"] is None
        else f"{mean['certified_level']:.3f} {given['kind']}"
    ),
    "test coverage": lambda given, mean, std: f"{mean['coverage']:.3f} ± {std['coverage']:.3f}",
    "mean set size": lambda given, mean, std: (
        "unbounded"
        if mean["mean_size"] is None
        else f"{mean['mean_size']:.2f} ± {std['mean_size']:.2f}"
    ),
    "trivial": lambda given, mean, std: f"{100 * mean['trivial']:.0f} %",
}
# Words, which may take two lines; numbers are never cut.
WORDS = ("method", "channel", "promised")
# What a narrow terminal leaves out first: how a result came about, not what it is.
LEAVE_OUT = ("channel", "exact epsilon")


def show(results: list[dict[str, Any]]) -> None:
    """Print one row a result, with what the terminal has room for; a file and JSON have
    everything."""
    width = columns()
    shown = {
        name: [
            name,
            *(cell(result["arguments"], result["mean"], result["std"]) for result in results),
        ]
        for name, cell in COLUMNS.items()
    }
    out = []
    for name in LEAVE_OUT:
        if (
            width is not None
            and sum(max(map(len, column)) + 3 for column in shown.values()) + 1 > width
        ):
            del shown[name]
            out.append(name)
    made = Table(title=_title(results[0]["arguments"]), title_justify="left", box=box.SIMPLE_HEAD)
    for name in shown:
        made.add_column(
            name,
            justify="left" if name in WORDS else "right",
            no_wrap=name not in WORDS,
            overflow="fold",
        )
    for row in zip(*(column[1:] for column in shown.values()), strict=True):
        made.add_row(*row)
    console = Console(width=width or 140)
    console.print(made)
    if out:
        console.print(f"left out at {width} columns: {', '.join(out)}", highlight=False)


def _title(given: dict[str, Any]) -> str:
    what = (
        f"{given['labels']} labels, score {given['score']}"
        if given["labels"]
        else f"residuals up to {given['bound']:g}"
    )
    named = ("failure_probability", "beta", "privacy_delta")
    deltas = [f"{name.replace('_', ' ')} = {given[name]:g}" for name in named if given.get(name)]
    return (
        f"{given['data']}, {what}: n = {given['n']}, alpha = {given['alpha']}, "
        f"{', '.join(deltas)}, "
        f"{given['trials']} trials, randomness: {given['randomness']}"
    )


def evaluate_command(
    context: typer.Context,
    data: Annotated[
        Path | None,
        typer.Option(
            help="npz with probs (n, K) and labels (n,); regression: predictions (n,) and targets "
            "(n,); full-data: features "
            "(n, d) and labels or targets; default: records that come with the project"
        ),
    ] = None,
    task: Annotated[
        str, typer.Option(help="classification or regression (methods central and full-data)")
    ] = CLASSIFICATION,
    method: Annotated[
        str,
        typer.Option(
            help="labels: private labels, features in clear; bits: both private; central: a "
            "trusted curator calibrates; "
            "full-data: a trusted curator trains and calibrates on the same records"
        ),
    ] = "labels",
    variant: Annotated[
        str,
        typer.Option(
            help="labels and bits: certified, published, published-star, one-shot (bits only) or "
            "non-private; full-data: "
            "certified, dpcp, scp-f, scp-a, split, split-certified, pscp, differential, split-cp "
            "or naive"
        ),
    ] = "certified",
    mechanism: Annotated[
        str,
        typer.Option(
            help=(
                "central: rank-exponential, above-threshold, laplace-counts, pps, dpcp, "
                "gaussian-search or noisy-midpoint"
            )
        ),
    ] = DEFAULT,
    channel: Annotated[
        str, typer.Option(help=f"{', '.join((AUTO, *LABEL_CHANNELS))} (method labels)")
    ] = AUTO,
    score: Annotated[str, typer.Option(help=", ".join(SCORES))] = "hps",
    epsilon: Annotated[
        float, typer.Option(help="privacy loss allowed a record, local or in all")
    ] = 1.0,
    privacy_delta: Annotated[
        float | None,
        typer.Option(
            help=(
                "delta of (epsilon, delta)-DP: Gaussian mechanisms, full-data [default there: 1e-5]"
            )
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="the promise is coverage of at least 1 - alpha")
    ] = 0.1,
    failure_probability: Annotated[
        float,
        typer.Option(help="labels, bits: probability, over calibration, that the promise fails"),
    ] = 0.1,
    delta: Renamed = None,
    beta: Annotated[
        float,
        typer.Option(help="central, full-data: probability that the quantile fails; part of alpha"),
    ] = 1e-3,
    bins: Annotated[
        int | None,
        typer.Option(
            help="bins of the public grid of scores [default: central 1,024, full-data 16,384]"
        ),
    ] = None,
    share: Annotated[
        float, typer.Option(help="full-data: share of epsilon that training gets")
    ] = 0.5,
    buffer: Annotated[
        int, typer.Option(help="full-data scp-f: ranks added by hand")
    ] = PUBLISHED_BUFFER,
    stability: Annotated[
        tuple[float, float, float, float] | None,
        typer.Option(
            metavar="L F U D",
            help="full-data scp-f: constants you vouch for (SCP Theorem 3): scores L-Lipschitz, "
            "density at most F, one "
            "record moves the model by more than U with probability at most D",
        ),
    ] = None,
    residual_range: Annotated[
        float | None, typer.Option("--range", help="regression: public bound on residuals")
    ] = None,
    feature_range: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="full-data: public limits of the features"),
    ] = None,
    n: Annotated[
        int | None, typer.Option(help="calibration records; the rest is the test [default: half]")
    ] = None,
    trials: Annotated[int, typer.Option(help="repetitions, each with a fresh split")] = 20,
    seed: Annotated[
        int | None,
        typer.Option(
            help="repeatable randomness, stamped as such; default: the operating system's"
        ),
    ] = None,
    max_corrupt: Annotated[
        int,
        typer.Option(
            help="reports that may be lies; the certificate is widened by their worst effect"
        ),
    ] = 0,
    card_file: Annotated[
        Path | None,
        typer.Option(
            "--card", help="full-data certified: write its contract card, signed as a simulation"
        ),
    ] = None,
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="FILE|-", help="write the result as JSON; - prints only JSON"
        ),
    ] = None,
) -> None:
    """What would this cost me? Coverage and set sizes of one method on your records, over repeated
    splits."""
    with clear_errors():
        if delta is not None:
            raise BadInput(FAILURE)
        check_choice("method", method, METHODS)
        check_choice("task", task, (CLASSIFICATION, REGRESSION))
        if task == REGRESSION and method in _LOCAL:
            raise BadInput(f"task is regression with method {method}; accepted: central, full-data")
        given = given_options(context)
        check_used(given, [f"{method}:{variant}"], BELONGS)
        check_used(given, [task], OF_TASKS)
        if card_file is not None and (method, variant) != ("full-data", "certified"):
            raise BadInput(
                f"a card of {method} {variant} is asked for; accepted here: full-data certified"
            )
        for file in (card_file, json_file):
            if file not in (None, "-") and not Path(str(file)).parent.is_dir():
                raise BadInput(f"cannot write {file}: its folder does not exist")
        records: Any = (
            lessons(data, task, residual_range, feature_range)
            if method == "full-data"
            else predicted(data, task, residual_range)
        )
        grid: dict[str, Any] = {} if bins is None else {"bins": bins}
        shared: dict[str, Any] = {
            "score": score,
            "epsilon": epsilon,
            "alpha": alpha,
            "n": len(records) // 2 if n is None else n,
            "trials": trials,
            "seed": seed,
        }
        setting: Repeated
        if method in _LOCAL:
            setting = Setting(
                method=method,
                variant=variant,
                channel=channel,
                failure_probability=failure_probability,
                max_corrupt=max_corrupt,
                **shared,
            )
        elif method == "central":
            setting = Central(
                variant=mechanism, beta=beta, privacy_delta=privacy_delta or 0.0, **grid, **shared
            )
        else:
            setting = full_data(
                variant=variant,
                beta=beta,
                share=share,
                buffer=buffer,
                privacy_delta=1e-5 if privacy_delta is None else privacy_delta,
                stability=None if stability is None else Stability(*stability),
                **grid,
                **shared,
            )
        (result,), complete = run_all(records, [setting])
        if json_file == "-":
            print(json.dumps(result, indent=2, allow_nan=False))
        else:
            if json_file is not None:
                write_json(result, Path(json_file))
            show([result])
        if card_file is not None:
            issued: Any = setting
            card = issued.card(records, result, issued=datetime.now(UTC).replace(microsecond=0))
            write_json(json.loads(card.sign(SIMULATION_KEY).to_json()), card_file)
        if not complete:
            raise typer.Exit(INTERRUPTED)


def full_data(**given: Any) -> Repeated:
    """A full-data setting; training needs packages that nothing else here does."""
    import torch

    from confide.simulation.evaluate.full_data import FullData

    # Steps on small batches wait for each other on several threads.
    torch.set_num_threads(1)
    return FullData(**given)
