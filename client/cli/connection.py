"""The options of every command that connects to an aggregator."""

import inspect
import math
import ssl
import sys
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from confide.client.transport.grpc_client import Access, Aggregator
from confide.client.transport.retry import Patience, Unreachable
from confide.protocol.commands.terminal import clear_errors
from confide.protocol.errors import BadInput
from confide.protocol.wire.service import CAMPAIGN_DIGITS, is_loopback, is_plan_name


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options before its own, and the aggregator that they name.

    An aggregator that cannot be reached is exit code 1.
    """
    shared = list(inspect.signature(_aggregator).parameters.values())
    own = list(inspect.signature(command).parameters.values())[1:]

    @wraps(command)
    def run(**given: Any) -> None:
        with clear_errors():
            remote = _aggregator(**{option.name: given.pop(option.name) for option in shared})
            try:
                command(remote, **given)
            except Unreachable as error:
                say(f"error: {error}")
                raise typer.Exit(1) from None
            finally:
                remote.close()

    options = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in (*shared, *own)]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def _aggregator(
    *,
    aggregator: Annotated[str, typer.Option(help="HOST:PORT of the aggregator")],
    campaign: Annotated[
        str, typer.Option(help="id of the campaign, or the whole digest of its plan")
    ],
    token_file: Annotated[
        Path, typer.Option(help="file with the token that the aggregator gave you")
    ],
    ca: Annotated[
        Path | None, typer.Option(help="authority of the aggregator's certificate (PEM)")
    ] = None,
    cert: Annotated[
        Path | None, typer.Option(help="your certificate, where the aggregator asks for one (PEM)")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="its private key (PEM)")] = None,
    patience: Annotated[
        float, typer.Option(help="seconds that the aggregator may be out of reach")
    ] = 600.0,
    insecure_loopback: Annotated[
        bool, typer.Option(help="no TLS; only for an aggregator on this machine")
    ] = False,
) -> Aggregator:
    if not 0 <= patience < math.inf:
        raise BadInput(f"--patience is {patience}; accepted is a number of seconds, 0 or more")
    if not is_plan_name(campaign):
        raise BadInput(
            f"campaign is {campaign!r}; accepted is its full id of {CAMPAIGN_DIGITS} hexadecimal "
            "digits, or all 64 of its plan's digest"
        )
    access = read_access(
        aggregator, token_file, ca=ca, cert=cert, key=key, insecure=insecure_loopback
    )
    return Aggregator(access, campaign, patience=Patience(patience, tell=say))


def read_access(
    address: str,
    token_file: Path,
    *,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    insecure: bool = False,
) -> Access:
    """Read the files with which an aggregator is reached; those that cannot be used are refused."""
    found = _certificates(address, ca=ca, cert=cert, key=key, insecure=insecure)
    return Access(address, _token(token_file), *found)


def say(text: str) -> None:
    """Show progress, apart from what a command prints as its result."""
    print(text, file=sys.stderr, flush=True)


def _token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as a token: {error}") from None
    if not token or not token.isascii() or not token.isprintable() or len(token) > 200:
        raise BadInput(
            f"{path} holds no token; accepted is the line that `confide-aggregator owner add` "
            "printed"
        )
    return token


def _certificates(
    address: str, *, ca: Path | None, cert: Path | None, key: Path | None, insecure: bool
) -> tuple[bytes | None, bytes | None, bytes | None]:
    if insecure:
        if not is_loopback(address):
            raise BadInput(
                f"--insecure-loopback to {address}; without TLS only an aggregator on this machine "
                "is accepted"
            )
        return None, None, None
    if ca is None or (cert is None) != (key is None):
        raise BadInput(
            "--ca is needed, and --cert and --key go together; the aggregator gives you ca.pem"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    (authority,) = _read((ca,), context.load_verify_locations)
    if cert is None or key is None:
        return authority, None, None
    # A key behind a password is refused instead of asked for.
    certificate, private = _read((cert, key), partial(context.load_cert_chain, password=""))
    return authority, certificate, private


def _read(paths: tuple[Path, ...], load: Callable[..., None]) -> list[bytes]:
    """Read PEM files that belong together, and try them.

    A channel would only say that it cannot connect.
    """
    try:
        found = [path.read_bytes() for path in paths]
        load(*paths)
    except ssl.SSLError as error:
        names = " with ".join(map(str, paths))
        raise BadInput(
            f"{names} cannot be used ({error.reason}); accepted are PEM files, a key with its "
            "certificate"
        ) from None
    except OSError as error:
        raise BadInput(f"{error.filename}: {error.strerror}; accepted is a PEM file") from None
    return found
