"""Code calls registered values: it compares neither their classes nor their names."""

import ast

import pytest

from confide.protocol.certificate import Certificate
from confide.protocol.methods.base import Query, Tally, Terms
from confide.protocol.methods.registry import METHODS
from confide.protocol.plan import Plan
from confide.protocol.scores import task
from tests.support.repository.imports import sources
from tests.support.repository.packages import PACKAGES
from tests.support.repository.places import ROOT


def kinds(base: type) -> set[str]:
    """The names of a class and of all classes made from it."""
    made: list[type] = base.__subclasses__()
    return {base.__name__}.union(*map(kinds, made))


def asked_kinds(text: str) -> set[str]:
    """The names of classes that a source text compares the class of a value with."""
    found: list[ast.AST] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += node.args[1:] if node.func.id in ("isinstance", "issubclass") else []
        elif isinstance(node, ast.MatchClass):
            found.append(node.cls)
        elif isinstance(node, ast.Compare) and any(
            isinstance(one, ast.Call) and ast.unparse(one.func) == "type"
            for one in (node.left, *node.comparators)
        ):
            found.append(node)
    inner = [one for node in found for one in ast.walk(node)]
    names = {one.id for one in inner if isinstance(one, ast.Name)}
    return names | {one.attr for one in inner if isinstance(one, ast.Attribute)}


def test_code_asks_no_plan_query_or_certificate_for_its_class() -> None:
    """Only a method's own modules do, and `Certificate.of`; others call what all methods have."""
    methods = set().union(*(kinds(base) for base in (Plan, Terms, Query, Tally, Certificate)))
    assert methods >= {terms.__name__ for terms in METHODS.values()} | {"BitQuery"}
    for path in sources(*PACKAGES):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith("protocol/methods/") and name != "protocol/certificate.py":
            assert not asked_kinds(path.read_text()) & methods, name


# Methods, tracks and tasks by name: no module may compare these.
TRACK_NAMES = {"LOCAL", "CENTRAL", "FULL_DATA", "MONITOR"}
TASK_NAMES = {
    *task.TASKS,
    *(name for name, value in vars(task).items() if isinstance(value, task.Task)),
}
NAMES = {*METHODS, *(terms.track for terms in METHODS.values() if terms.track)}
VARIANTS = {variant for terms in METHODS.values() for variant in terms.variants}
# Where variants are told apart: the methods themselves, their procedures and verifiers, and the
# pipelines of one place that train and calibrate.
VARIANT_ROOMS = (
    "protocol/methods/",
    "aggregator/procedures/",
    "protocol/cards/verify/local/",
    "protocol/cards/verify/monitor.py",
    "protocol/cards/verify/counts/full_data_campaign.py",
    "simulation/evaluate/full_data/",
    "simulation/reproduce/full_data/",
)


def compared_words(text: str) -> set[str]:
    """The words, and the constants that stand for them, that a source text compares values with.

    Whether a word is a key of something is no comparison with it."""
    found: list[ast.AST] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            values = [node.left, *node.comparators]
            for left, asked, right in zip(values[:-1], node.ops, values[1:], strict=True):
                if isinstance(asked, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
                    found += [left, right]
                elif isinstance(asked, ast.In | ast.NotIn):
                    found.append(right)
        elif isinstance(node, ast.MatchValue):
            found.append(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found += node.args if node.func.attr in ("startswith", "endswith") else []
    # Of tuples, lists and sets the elements count; what is computed does not.
    flat = [part for one in found for part in getattr(one, "elts", [one])]
    words = {str(one.value) for one in flat if isinstance(one, ast.Constant)}
    words |= {one.id for one in flat if isinstance(one, ast.Name) and one.id.isupper()}
    return words | {ast.unparse(one) for one in flat if isinstance(one, ast.Attribute)}


def test_code_compares_no_method_track_task_or_variant_by_name() -> None:
    """What depends on one is asked of its terms, or is part of its registered value; variants are
    told apart by their own method alone."""
    names = NAMES | TRACK_NAMES | TASK_NAMES
    names |= {f"{terms.__name__}.method" for terms in METHODS.values()}
    assert names >= {"bits", "full-data", "local", "regression", "MULTI_LABEL", "BitTerms.method"}
    for path in sources(*PACKAGES):
        name, found = path.relative_to(ROOT).as_posix(), compared_words(path.read_text())
        assert not found & names, name
        assert name.startswith(VARIANT_ROOMS) or not found & VARIANTS, name


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("terms.method == 'bits'", "bits"),
        ("'central' != formal['track']", "central"),
        ("formal['track'] in ('local', 'monitor')", "monitor"),
        ("formal['track'] not in {LOCAL, CENTRAL}", "LOCAL"),
        ("plan.method == BitTerms.method", "BitTerms.method"),
        ("score.task == REGRESSION", "REGRESSION"),
        ("plan.task in (MULTI_LABEL, OWN_LOSS)", "OWN_LOSS"),
        ("score.task is not CLASSIFICATION", "CLASSIFICATION"),
        ("released['task'] != 'regression'", "regression"),
        ("found['variant'].startswith('published')", "published"),
        ("(kind, variant) == ('full-data', 'certified')", "certified"),
        ("match kind:\n    case 'labels': pass", "labels"),
    ],
)
def test_every_way_to_compare_a_name_is_found(line: str, word: str) -> None:
    """So the test above cannot be passed by another spelling; a key of a value is none."""
    assert word in compared_words(line)
    assert "certified" not in compared_words("'certified' in formal['failed']")


@pytest.mark.parametrize(
    "line",
    [
        "isinstance(one, BitTerms)",
        "assert isinstance(one, str | bits.BitTerms)",
        "issubclass(one, (int, BitTerms))",
        "type(one) is BitTerms",
        "type(one) in (BitTerms, int)",
        "match one:\n    case BitTerms(): pass",
    ],
)
def test_every_way_to_ask_for_a_class_is_found(line: str) -> None:
    """So the test above cannot be passed by another spelling."""
    assert "BitTerms" in asked_kinds(line)
