import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "protocol": {"protocol"},
    "client": {"protocol", "client"},
    "aggregator": {"protocol", "aggregator"},
    "simulation": {"protocol", "client", "aggregator", "simulation"},
}
HEAVY = {"flwr", "torch", "opacus", "grpc", "sqlalchemy"}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


@pytest.mark.parametrize("package", list(ALLOWED))
def test_dependencies_point_one_way(package: str) -> None:
    """protocol knows nobody, client and aggregator know protocol, simulation knows all."""
    for path in (ROOT / package).rglob("*.py"):
        assert imports(path) & set(ALLOWED) <= ALLOWED[package], path


def test_protocol_stays_light() -> None:
    """No framework is imported by what both sides share."""
    for path in (ROOT / "protocol").rglob("*.py"):
        assert not imports(path) & HEAVY, path


@pytest.mark.parametrize("package", list(ALLOWED))
def test_package_files_hold_a_docstring_only(package: str) -> None:
    """Importing a package does nothing."""
    body = ast.parse((ROOT / package / "__init__.py").read_text()).body
    assert len(body) == 1
    assert isinstance(body[0], ast.Expr)


ADAPTERS = {
    "grpc": {"aggregator/grpc_server.py", "aggregator/grpc_checks.py", "client/grpc_client.py"},
    "sqlalchemy": {
        f"aggregator/{name}.py"
        for name in ("schema", "database", "store", "stored_ids", "enrolment", "deposit", "writer", "views")
    },
    "alembic": {"aggregator/database.py"},
    "starlette": {"aggregator/web/server.py"},
    "prometheus_client": {"aggregator/web/metrics.py"},
    "flwr": {"aggregator/flower_app.py", "client/flower_app.py", "client/pinned.py"},
}  # fmt: skip


@pytest.mark.parametrize("technology", list(ADAPTERS))
def test_technologies_are_named_in_adapters_only(technology: str) -> None:
    """What moves or keeps bytes can be exchanged without touching what decides."""
    for package in ("client", "aggregator"):
        for path in (ROOT / package).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            allowed = name in ADAPTERS[technology] or "/migrations/" in name
            assert technology not in imports(path) or allowed, name
