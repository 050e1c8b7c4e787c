"""The options of a server: where it listens, its certificates, and what owners may ask of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from confide.aggregator.keys import read_certificates, read_pair
from confide.aggregator.server.grpc_server import Endpoint
from confide.aggregator.server.limits import ServerLimits
from confide.protocol.errors import BadInput
from confide.protocol.wire.service import is_loopback

MOST_PORT = 65535


@dataclass(frozen=True)
class EndpointOptions:
    """Where the server listens, and its certificates."""

    listen: Annotated[str, typer.Option(help="HOST:PORT to listen on")] = "127.0.0.1:8443"
    tls_cert: Annotated[Path | None, typer.Option(help="certificate of the server (PEM)")] = None
    tls_key: Annotated[Path | None, typer.Option(help="its private key (PEM)")] = None
    client_ca: Annotated[
        Path | None, typer.Option(help="authority of owners' certificates (owners.pem): mutual TLS")
    ] = None
    insecure_loopback: Annotated[
        bool, typer.Option(help="no TLS; accept only owners on this machine")
    ] = False

    def endpoint(self) -> Endpoint:
        """The endpoint with the certificates read; contradictions are refused."""
        host, _, port = self.listen.rpartition(":")
        if not (
            host and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= MOST_PORT
        ):
            raise BadInput(
                f"--listen is {self.listen!r}; accepted is HOST:PORT with a port from 0 to "
                f"{MOST_PORT}"
            )
        if self.insecure_loopback:
            return self._insecure(host)
        if self.tls_cert is None or self.tls_key is None:
            raise BadInput(
                "--tls-cert and --tls-key are needed; `confide-aggregator init` writes a pair"
            )
        certificate, key = read_pair(self.tls_cert, self.tls_key)
        owners = None if self.client_ca is None else read_certificates(self.client_ca)
        return Endpoint(self.listen, certificate, key, owners)

    def _insecure(self, host: str) -> Endpoint:
        if not is_loopback(self.listen):
            raise BadInput(
                f"--insecure-loopback with {host}; without TLS only a loopback address is "
                "accepted, as 127.0.0.1"
            )
        if self.tls_cert or self.tls_key or self.client_ca:
            raise BadInput("--insecure-loopback with certificates; accepted is one or the other")
        return Endpoint(self.listen)


@dataclass(frozen=True)
class LimitOptions:
    """What owners may ask of the server."""

    message_bytes: Annotated[int, typer.Option(help="largest message")] = ServerLimits.message_bytes
    rate: Annotated[float, typer.Option(help="messages per second and owner")] = (
        ServerLimits.messages_a_second
    )
    open_calls: Annotated[int, typer.Option(help="open calls per owner")] = ServerLimits.open_calls
    idle_seconds: Annotated[float, typer.Option(help="end a stream that is silent for so long")] = (
        ServerLimits.idle_seconds
    )
    stream_seconds: Annotated[float, typer.Option(help="the longest a stream may last")] = (
        ServerLimits.stream_seconds
    )
    connections: Annotated[
        int, typer.Option(help="connections at a time, of all owners together")
    ] = ServerLimits.connections
    byte_rate: Annotated[
        float, typer.Option(help="bytes per second and owner; an owner can save up 16 seconds")
    ] = ServerLimits.bytes_a_second

    def limits(self) -> ServerLimits:
        return ServerLimits(
            message_bytes=self.message_bytes,
            messages_a_second=self.rate,
            open_calls=self.open_calls,
            idle_seconds=self.idle_seconds,
            stream_seconds=self.stream_seconds,
            connections=self.connections,
            bytes_a_second=self.byte_rate,
        )
