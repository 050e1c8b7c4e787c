"""A launcher for SuperNodes that never runs the code it is sent.

Flower ships the client's code with every run. `pin` fills a folder with launchers that stand first
on the PATH of a node. The launcher for client apps checks that the owner allows the bundle, does
not unpack it, and runs the client app that is installed here; the launchers for every other kind of
task refuse. The launcher replaces three functions of Flower's client process, so Flower is pinned
to an exact version and a test runs it against a real SuperLink.
"""

import hashlib
import sys
from pathlib import Path
from typing import Any

from confide.protocol.errors import BadInput, ConfideError
from confide.protocol.files import write_whole

CLIENT_COMMAND = "flwr-clientapp"
REFUSED_COMMANDS = (
    "flwr-serverapp",
    "flwr-simulation",
    "flwr-agentapp",
    "flwr-model",
    "flwr-connector",
)
ALLOWED_FILE = "allowed-bundles.txt"
HEADER = (
    "# SHA-256 of the bundles whose runs are answered, one a line (see `confide-client "
    "bundle-hash`).\n"
)


class BundleRefused(ConfideError):
    """A bundle that the owner does not allow; the message holds nothing but its hash."""


def pin(folder: Path, allowed: list[str]) -> None:
    """Write the launchers, and add the given hashes to the list of allowed bundles."""
    for value in allowed:
        _check_hash(value)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        known = read_allowed(folder) if (folder / ALLOWED_FILE).exists() else []
        lines = "".join(f"{value}\n" for value in dict.fromkeys([*known, *allowed]))
        write_whole(folder / ALLOWED_FILE, HEADER + lines)
        scripts = {CLIENT_COMMAND: "launch"} | dict.fromkeys(REFUSED_COMMANDS, "refuse")
        for name, function in scripts.items():
            script = (
                f"#!{sys.executable}\nfrom confide.client.transport.pinned_launcher import "
                f"{function}\n\n{function}({str(folder.resolve())!r})\n"
            )
            write_whole(folder / name, script, mode=0o755)
    except OSError as error:
        raise BadInput(
            f"cannot write launchers into {folder}: {error.strerror}; accepted is a folder of your "
            "own"
        ) from None


def read_allowed(folder: Path) -> list[str]:
    """The allowed hashes of a folder of launchers."""
    lines = (folder / ALLOWED_FILE).read_text().splitlines()
    return [
        _check_hash(line.strip()) for line in lines if line.strip() and not line.startswith("#")
    ]


def bundle_hash(project: Path) -> str:
    """The hash of the bundle that Flower builds from a project; builds are deterministic."""
    from flwr.cli.build import build_fab_from_disk

    if not (project / "pyproject.toml").is_file():
        raise BadInput(f"{project} has no pyproject.toml; accepted is a checkout of a Flower app")
    return hashlib.sha256(build_fab_from_disk(project)).hexdigest()


def launch(folder: str) -> None:
    """Start Flower's client process with the owner's own client app in place of the bundle's."""
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp
    from flwr.supernode.runtime import run_clientapp as process

    def admit(content: bytes, **_: Any) -> None:
        found = hashlib.sha256(content).hexdigest()
        if found not in read_allowed(Path(folder)):
            raise BundleRefused(f"bundle {found} is not allowed by the data owner")

    def own_app(*_: Any) -> Any:
        from confide.client.flower_app import app

        return app

    def no_dependencies(*_: Any, **__: Any) -> None:
        raise BundleRefused("dependencies of bundles are not installed by the data owner")

    replaced: Any = process
    replaced.install_from_fab = admit
    replaced.get_load_client_app_fn = lambda **_: own_app
    replaced.install_app_dependencies = no_dependencies
    flwr_clientapp()


def refuse(folder: str) -> None:
    """Refuse any other kind of task."""
    sys.exit("this data owner runs nothing but its own client app")


def _check_hash(value: str) -> str:
    if len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        raise BadInput(f"bundle hash is {value!r}; accepted are 64 hexadecimal digits, lower case")
    return value
