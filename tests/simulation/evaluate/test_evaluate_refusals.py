import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.__main__ import main
from tests.support.programs.commands import run_main
from tests.support.programs.simulation import CENTRAL, FULL, in_process, simulation


def broken_files(folder: Path, records: Path) -> dict[str, Path]:
    with np.load(records) as archive:
        probs, labels = archive["probs"], archive["labels"]
    made: dict[str, dict[str, Any]] = {
        "sum": {"probs": probs * 1.1, "labels": labels},
        "nan": {"probs": np.where(np.arange(5) == 2, np.nan, probs), "labels": labels},
        "label": {"probs": probs, "labels": labels + 1},
        "shape": {"probs": probs, "labels": labels[:-1]},
        "array": {"probs": probs},
        "object": {"probs": probs, "labels": np.array([{}] * len(labels))},
    }
    for name, arrays in made.items():
        np.savez(folder / f"{name}.npz", **arrays)
    (folder / "cut.npz").write_bytes(records.read_bytes()[:2_000])
    (folder / "text.npz").write_text("not an archive")
    np.save(folder / "plain.npy", probs)
    os.rename(folder / "plain.npy", folder / "plain.npz")
    names = [*made, "cut", "text", "plain"]
    return {name: folder / f"{name}.npz" for name in names} | {
        "missing": folder / "missing.npz",
        "folder": folder,
    }


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sum", "sum to"),
        ("nan", "nan"),
        ("label", "labels run from"),
        ("shape", "truth has shape"),
        ("array", "no column 'label'"),
        ("object", "cannot be read"),
        ("cut", "cannot be read"),
        ("text", "cannot be read"),
        ("plain", "cannot be read"),
        ("missing", "does not exist"),
        ("folder", "ends in"),
    ],
)
def test_unusable_files_get_one_clear_line(
    name: str, says: str, records: Path, tmp_path: Path
) -> None:
    """Exit code 2, one line on standard error that names the file and what is wrong, no traceback,
    nothing written."""
    path = broken_files(tmp_path, records)[name]
    out = tmp_path / "result.json"
    # numpy leaves a file that is cut short open until its process ends.
    command = simulation if name == "cut" else partial(run_main, main)
    run = command("evaluate", "--data", path, "--json", out)
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert str(path) in run.stderr
    assert says in run.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--epsilon", "0"], "epsilon is 0.0"),
        (["--epsilon", "-1"], "epsilon is -1.0"),
        (["--epsilon", "inf"], "epsilon is inf"),
        (["--alpha", "1"], "alpha is 1.0"),
        (["--alpha", "0"], "alpha is 0.0"),
        (["--failure-probability", "1.5"], "failure-probability is 1.5"),
        (["--delta", "0.1"], "delta is now failure-probability"),
        (["--n", "3000"], "accepted are 1 to 2999"),
        (["--n", "0"], "n is 0"),
        (["--trials", "0"], "trials is 0"),
        (["--max-corrupt", "-1"], "max-corrupt is -1"),
        (["--method", "votes"], "accepted: labels, bits"),
        (["--variant", "one-shot"], "accepted: certified, class-conditional, for-every-owner"),
        (["--score", "apz"], "accepted: hps"),
        (["--channel", "bit"], "accepted: k-rr, subset, unary"),
        (["--score", "false-negatives"], "accepted: classification, regression"),
        (["--score", "cqr"], "needs a public bound"),
        (["--score", "cqr bound=2", "--range", "2"], "accepted is one"),
        (["--score", "cqr bound=2", "--task", "classification"], "a score of that task"),
        (["--score", "cqr bound=2"], "missing: lower, upper"),
        (["--variant", "published", "--channel", "subset"], "defined for k-rr"),
        (["--json", "/nonexistent/x.json", "--trials", "1"], "cannot write"),
    ],
)
def test_impossible_arguments_get_one_clear_line(
    arguments: list[str], says: str, records: Path
) -> None:
    """Exit code 2 and one line with what was found and what is accepted."""
    run = run_main(main, "evaluate", "--data", records, *arguments)
    assert run.returncode == 2, run.stdout
    assert run.stderr.count("\n") == 1
    assert says in run.stderr


def test_an_unknown_option_points_to_help() -> None:
    """A mistyped option is exit code 2 without a traceback."""
    run = simulation("evaluate", "--epsilom", "1")
    assert run.returncode == 2
    assert "--epsilom" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([*CENTRAL, "--beta", "0.1"], "beta must be below alpha"),
        ([*CENTRAL, "--beta", "-0.1"], "beta is -0.1"),
        ([*CENTRAL, "--bins", "1"], "bins is 1"),
        ([*CENTRAL, "--n", "3000"], "accepted are 1 to 2999"),
        ([*CENTRAL, "--mechanism", "median"], "accepted: laplace-counts"),
        ([*CENTRAL, "--privacy-delta", "1e-6"], "is pure"),
        ([*CENTRAL, "--mechanism", "noisy-midpoint"], "accepted is above 0"),
        ([*CENTRAL, "--variant", "certified"], "accepted: trusted, owner-noised"),
        ([*CENTRAL, "--variant", "owner-noised", "--owners", "0"], "owners is 0"),
        ([*CENTRAL, "--epsilon", "0"], "epsilon is 0.0"),
        ([*CENTRAL, "--task", "ranking"], "accepted: classification, regression"),
        ([*CENTRAL, "--task", "regression"], "--range BOUND"),
        ([*CENTRAL, "--range", "2"], "missing: prediction"),
        (["--range", "2"], "missing: prediction"),
        (FULL, "--feature-range LOW HIGH"),
        ([*FULL, "--feature-range", "1", "0"], "missing: features"),
        ([*FULL, "--variant", "dpcp", "--card", "x.json"], "accepted here: full-data certified"),
        ([*CENTRAL, "--card", "x.json"], "accepted here: full-data certified"),
        ([*CENTRAL, "--delta", "0.1"], "delta is now failure-probability"),
    ],
)
def test_impossible_central_arguments_get_one_clear_line(
    arguments: list[str], says: str, records: Path
) -> None:
    """Exit code 2 and one line with what was found and what is accepted, for central and full-data
    methods too."""
    run = in_process("--data", records, *arguments)
    assert run.exit_code == 2, run.output
    assert run.stderr.count("\n") == 1
    assert says in run.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--share", "1"], "share is 1.0"),
        (["--variant", "median"], "accepted: certified, dpcp, scp-f"),
        (["--beta", "0.2"], "beta must be below alpha"),
        (["--privacy-delta", "0"], "delta is 0.0"),
        (["--n", "20", "--epsilon", "4"], "infeasible: rank"),
        (["--variant", "scp-f", "--stability", "1", "1", "1", "0"], "probability"),
        (["--feature-range", "1", "0"], "low < high"),
        (["--data", "nan"], "no finite numbers"),
        (["--data", "text"], "no finite numbers"),
        (["--data", "short"], "features have shape"),
        (["--data", "plain", "--task", "regression"], "missing: targets"),
    ],
)
def test_impossible_full_data_arguments_get_one_clear_line(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    """Exit code 2 before anything is trained."""
    features, labels = np.random.default_rng(0).uniform(-1, 1, (60, 2)), np.arange(60) % 3
    files: dict[str, dict[str, Any]] = {
        "plain": {"features": features, "labels": labels},
        "nan": {"features": np.where(features > 0.9, np.nan, features), "labels": labels},
        "text": {"features": features.astype(str), "labels": labels},
        "short": {"features": features, "labels": labels[:-1]},
    }
    for name, arrays in files.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
    named = [str(tmp_path / f"{word}.npz") if word in files else word for word in arguments]
    run = in_process("--data", tmp_path / "plain.npz", "--feature-range", "-1", "1", *FULL, *named)
    assert run.exit_code == 2, run.output
    assert run.stderr.count("\n") == 1
    assert says in run.stderr


LOCAL, ELSEWHERE = "labels, bits", "central, full-data"


@pytest.mark.parametrize(
    ("arguments", "owners"),
    [
        ([*CENTRAL, "--failure-probability", "0.1"], "labels:PAC, labels:band, bits:PAC"),
        ([*FULL, "--max-corrupt", "1"], LOCAL),
        ([*CENTRAL, "--channel", "auto"], "labels"),
        ([*CENTRAL, "--owners", "2"], "central:owner-noised"),
        (["--variant", "class-conditional", "--largest-set", "5"], "labels:certified"),
        (
            ["--variant", "published", "--largest-set", "5"],
            "labels:certified, labels:for-every-owner",
        ),
        (["--joint"], "labels:class-conditional"),
        (["--privacy-delta", "1e-6"], ELSEWHERE),
        (["--method", "bits", "--bins", "64"], ELSEWHERE),
        (["--beta", "0.01"], ELSEWHERE),
        ([*FULL, "--mechanism", "pps"], "central"),
        ([*CENTRAL, "--share", "0.5"], "full-data:certified, full-data:dpcp"),
        ([*FULL, "--variant", "split", "--share", "0.5"], "full-data:certified, full-data:dpcp"),
        ([*FULL, "--buffer", "3"], "full-data:scp-f"),
        ([*FULL, "--stability", "1", "1", "1", "0.1"], "full-data:scp-f"),
        ([*CENTRAL, "--feature-range", "0", "1"], "full-data"),
        ([*FULL, "--range", "1"], "regression"),
        ([*FULL, "--task", "regression", "--score", "aps"], "classification"),
    ],
)
def test_an_option_of_another_method_is_refused(arguments: list[str], owners: str) -> None:
    """An option that would be ignored is exit code 2 and one line with its name and the methods
    that it belongs to."""
    run = in_process(*arguments)
    assert run.exit_code == 2, run.output
    assert run.stderr.count("\n") == 1
    assert " is given, which " in run.stderr
    assert f"; it belongs to {owners}" in run.stderr


def test_limits_of_features_are_for_records_that_are_given() -> None:
    """The records that come with the project have public limits; others are refused and not
    ignored."""
    run = in_process(*FULL, "--feature-range", "0", "9")
    assert (run.exit_code, "--feature-range is given without --data" in run.stderr) == (2, True)
