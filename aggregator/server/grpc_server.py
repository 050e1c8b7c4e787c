"""The gRPC server: where it listens, its limits on connections, and the services it offers."""

from dataclasses import dataclass
from typing import Any

import grpc

from confide.aggregator.server.bounds import Bounds
from confide.aggregator.server.health import HealthChecks
from confide.aggregator.server.limits import ServerLimits
from confide.aggregator.server.service import Service
from confide.protocol.errors import BadInput

GRACE_SECONDS = 10.0
# How much larger than the limit a message may be and still be refused by a code of this protocol,
# and counted, instead of by gRPC.
MARGIN_BYTES = 1 << 16
# How long a connection may be without a call, how long its handshake may take, and how many calls
# it may have open.
IDLE_SECONDS, HANDSHAKE_SECONDS, STREAMS = 15.0, 5.0, 64


@dataclass(frozen=True)
class Endpoint:
    """The address that the server listens on, and its certificates.

    Without certificates there is no TLS, and the address must be of this machine.
    """

    address: str
    certificate: bytes | None = None
    key: bytes | None = None
    client_authority: bytes | None = None

    def add_to(self, server: Any) -> int:
        try:
            if self.certificate is None:
                return int(server.add_insecure_port(self.address))
            credentials = grpc.ssl_server_credentials(
                [(self.key, self.certificate)],
                self.client_authority,
                require_client_auth=self.client_authority is not None,
            )
            return int(server.add_secure_port(self.address, credentials))
        except RuntimeError:
            raise BadInput(
                f"cannot listen on {self.address}; accepted is HOST:PORT with a free port"
            ) from None


class GrpcServer:
    """The service at an endpoint, with the health checks of gRPC beside it."""

    def __init__(
        self, service: Service, endpoint: Endpoint, *, limits: ServerLimits, bounds: Bounds
    ) -> None:
        self._checks = HealthChecks(asking=bounds.checks, watching=bounds.health_watches)
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limits.message_bytes + MARGIN_BYTES),
                # Otherwise windows grow to megabytes a stream, and are filled before the sender is
                # authenticated.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.so_reuseport", 0),
                ("grpc.keepalive_time_ms", 60_000),
                # A client without a token has no call open, so its connection is closed soon: as
                # idle, or because there are too many.
                ("grpc.max_connection_idle_ms", round(1_000 * IDLE_SECONDS)),
                ("grpc.server_handshake_timeout_ms", round(1_000 * HANDSHAKE_SECONDS)),
                ("grpc.max_allowed_incoming_connections", limits.connections),
                # A cancelled stream counts until this process has handled it; a client that opens
                # more is disconnected.
                ("grpc.max_concurrent_streams", STREAMS),
            ],
        )
        self._server.add_generic_rpc_handlers((service.handlers(), self._checks.handlers()))
        self.port = endpoint.add_to(self._server)

    async def start(self) -> None:
        await self._server.start()

    def set_health(self, *, healthy: bool) -> None:
        """Answer health checks with this from now on."""
        self._checks.set_health(healthy=healthy)

    def announce_stop(self) -> None:
        """Tell health checks that this server is about to stop."""
        self._checks.set_health(healthy=False, final=True)

    async def stop(self) -> None:
        """Take no new calls, and give open calls some time to end."""
        await self._server.stop(GRACE_SECONDS)
