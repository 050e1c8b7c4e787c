"""`allow`: add aggregators, models, networks and public columns to the policy."""

import re
from pathlib import Path
from typing import Annotated

import typer

from confide.client.cli.options import DEFAULT_HOME, Folder, Yes, confirm
from confide.client.home import Home
from confide.client.policy import VETTED, list_in
from confide.protocol.architectures.base import canonical
from confide.protocol.architectures.factories import is_factory, source_digest
from confide.protocol.architectures.registry import read_architecture
from confide.protocol.commands.command_line import CommandLine
from confide.protocol.commands.terminal import clear_errors
from confide.protocol.errors import BadInput
from confide.protocol.files import write_whole
from confide.protocol.methods.partition import check_name
from confide.protocol.models.model_file import Model
from confide.protocol.models.scorer import check_model

Vetted = Annotated[
    bool,
    typer.Option("--vetted", help="let it see many records at once: you have looked into it"),
]
allow_app = CommandLine("Add an aggregator, a model, a network or a column to the policy.")


@allow_app.command("aggregator")
def allow_aggregator(
    key: Annotated[
        str,
        typer.Argument(help="its public key: 64 hexadecimal digits, as the aggregator shows it"),
    ],
    home: Folder = DEFAULT_HOME,
    yes: Yes = False,
) -> None:
    """Answer the plans that this key signs, within the rest of the policy."""
    with clear_errors():
        value = _digest("key", key, accepted="64 hexadecimal digits")
        print(f"Plans signed by {value.hex()} will be answered, within the rest of your policy.")
        print("Compare the key with the one that the aggregator gave you by another channel.")
        _add_to_policy(Home(home), {"aggregators": value.hex()}, yes=yes)


@allow_app.command("model")
def allow_model(
    model: Annotated[
        str,
        typer.Argument(help="the model's file (.onnx), or its SHA-256 as 64 hexadecimal digits"),
    ],
    *,
    home: Folder = DEFAULT_HOME,
    vetted: Vetted = False,
    yes: Yes = False,
) -> None:
    """Let this model score your records, one at a time (or in batches, if you have vetted it)."""
    with clear_errors():
        if Path(model).exists():
            found = Model.read(Path(model))
            check_model(found, model)
            print(f"{model}: {len(found.data)} bytes, no external data, no custom operators.")
            value = found.digest
        else:
            value = _digest("model", model, accepted="64 hexadecimal digits, or a file")
            print(
                "There is no such file, so this is taken as the digest of a model, which is "
                "checked when it is used."
            )
        print(f"The model with SHA-256 {value.hex()} may score your records.")
        if vetted:
            print(
                "It will see many at once. A model built for it can report one record through the "
                "results of all the others."
            )
        lists = ("models", "vetted_models") if vetted else ("models",)
        _add_to_policy(Home(home), dict.fromkeys(lists, value.hex()), yes=yes)


@allow_app.command("architecture")
def allow_architecture(
    network: Annotated[
        str,
        typer.Argument(
            help="the network, as in the plan: package.module:factory, or with its arguments "
            "'package.module:factory argument=value'"
        ),
    ],
    *,
    home: Folder = DEFAULT_HOME,
    vetted: Vetted = False,
    yes: Yes = False,
) -> None:
    """Let this network, of a package that you installed, be trained on your records.

    NETWORK is as in the plan: 'package.module:factory argument=value'. Built-in networks need no
    entry. The package runs as code on this machine and sees your records; it is allowed with these
    arguments, and with the files that it has now and not when they have changed. It sees one record
    at a time unless you have vetted it, which is faster.
    """
    with clear_errors():
        name, arguments = read_architecture(network)
        if not is_factory(name):
            raise BadInput(f"architecture is {name!r}; accepted is package.module:factory")
        digest = source_digest(name).hex()
        print(f"The network {name} may be trained on your records. It is code: read it first.")
        print("It is run with the arguments", canonical(arguments))
        print("Its package has files with the digest", digest)
        if vetted:
            print(
                "It will see many records at once. Code that lets them meet, perhaps only at "
                "weights made for it, can report one through the gradients of all the others."
            )
        value = " ".join([*network.split(), digest, *([VETTED] if vetted else [])])
        _add_to_policy(Home(home), {"architectures": value}, yes=yes)


@allow_app.command("column")
def allow_column(
    name: Annotated[str, typer.Argument(help="the column of your records, such as ward")],
    home: Folder = DEFAULT_HOME,
    yes: Yes = False,
) -> None:
    """Let the values of a column of your records leave in clear, as the group of each record."""
    with clear_errors():
        check_name("the column", name)
        print(f"The {name} of your records may leave in clear. No epsilon covers it.")
        print("From now on it is no feature: no model sees it.")
        _add_to_policy(Home(home), {"columns_may_leave": name}, yes=yes)


def _add_to_policy(place: Home, values: dict[str, str], *, yes: bool) -> None:
    """Add values to lists of the policy, after the owner has confirmed it."""
    place.policy()
    path = place.policy_file.resolve()
    text = path.read_text(encoding="utf-8-sig")
    for name, value in values.items():
        text = list_in(text, name, value)
    confirm(f"Write this into {place.policy_file}?", yes)
    write_whole(path, text, mode=0o600)
    print(f"wrote {place.policy_file}: {', '.join(values)}")


def _digest(what: str, text: str, *, accepted: str) -> bytes:
    if re.fullmatch("[0-9a-fA-F]{64}", text) is None:
        raise BadInput(f"{what} is {text!r}; accepted are {accepted}")
    return bytes.fromhex(text)
