"""The page over HTTP, on the loopback address of this machine only.

Users elsewhere reach it through a proxy that authenticates them.
"""

import asyncio
import json
import logging
import socket
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from uvicorn.protocols.http.h11_impl import H11Protocol

from confide.aggregator.logs import place_of
from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.storage import views
from confide.aggregator.storage.store import Store
from confide.aggregator.web.html_pages import Pages
from confide.aggregator.web.metrics import metrics
from confide.protocol.cards.card import PUBLIC
from confide.protocol.errors import BadInput
from confide.protocol.wire.service import is_campaign_id

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
# Names a browser may call this by: another would be a foreign page that has its name point here.
HOSTS = [HOST, "localhost"]
# A page that is watched is rendered so often, once for all who watch it.
EVERY_SECONDS, HEARTBEAT_SECONDS = 1.0, 15.0
# Those who watch leave room for those who look, gauges and health checks among them.
MOST_WATCHERS, MOST_CONNECTIONS = 100, 400
# Who connects and asks nothing for so long is cut off.
PATIENCE_SECONDS = 10.0
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src "
        "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    # One request a connection, so that idle connections take no place.
    "Connection": "close",
}


class Site:
    """Every address of the page, and what it answers."""

    def __init__(self, store: Store, key: bytes, status: ProcessStatus) -> None:
        self._store, self._pages, self._status = store, Pages(store, key), status
        self._metrics = metrics(store, status, time.monotonic)
        self._rendered: dict[str, tuple[float, str]] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._watching, self.stopping = 0, False

    def app(self) -> Starlette:
        campaign = "/campaigns/{id}"
        routes = [
            Route("/", self._index),
            Route("/events", self._index_events),
            Route(campaign, self._campaign),
            Route(f"{campaign}/events", self._campaign_events),
            Route(f"{campaign}/card", self._card),
            *(Route(f"{campaign}/{name}", self._file(name)) for name in self._files()),
            Route("/metrics", self._gauges),
            Route("/healthz", self._health),
            Mount(
                "/static",
                StaticFiles(directory=str(files("confide.aggregator.web").joinpath("static"))),
            ),
        ]
        guards = [
            Middleware(_Headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False),
        ]
        failures = {HTTPException: self._refused, Exception: self._failed}
        return Starlette(routes=routes, middleware=guards, exception_handlers=failures)

    async def _index(self, request: Request) -> Response:
        return HTMLResponse(await self._newest("/", lambda: self._pages.index(whole=True)))

    async def _campaign(self, request: Request) -> Response:
        one = await run_in_threadpool(self._one, request)
        return HTMLResponse(
            await self._newest(f"/{one.id}", lambda: self._pages.campaign(one, whole=True))
        )

    def _card(self, request: Request) -> Response:
        return HTMLResponse(_found(self._pages.card(self._one(request))))

    def _files(self) -> dict[str, tuple[str, Callable[[views.Overview], bytes | str | None]]]:
        """The downloads of a campaign: the type and content of each.

        The auditor's card is not among them, because it is not public.
        """
        store = self._store
        return {
            "plan.bin": (
                "application/octet-stream",
                lambda one: store.campaign(one.id).signed_plan,
            ),
            "status.json": (
                "application/json",
                lambda one: json.dumps(views.status(store.engine, one), indent=2),
            ),
            "training.json": ("application/json", lambda one: store.about_training(one.id)),
            "card.json": ("application/json", lambda one: store.card(one.id, PUBLIC)),
            "card.html": ("text/html", self._pages.card_file),
        }

    def _file(self, name: str) -> Callable[[Request], Response]:
        kind, content = self._files()[name]

        def answer(request: Request) -> Response:
            one = self._one(request)
            saved = {"Content-Disposition": f'attachment; filename="{one.id}-{name}"'}
            return Response(_found(content(one)), media_type=kind, headers=saved)

        return answer

    def _one(self, request: Request) -> views.Overview:
        name = request.path_params["id"]
        # A database is asked about nothing that cannot be an id: not all take every character.
        return _found(views.overview(self._store.engine, name) if is_campaign_id(name) else None)

    def _gauges(self, request: Request) -> Response:
        return Response(self._metrics(), media_type="text/plain; version=0.0.4")

    async def _health(self, request: Request) -> Response:
        well = self._status.healthy(time.monotonic())
        said = (
            "ok"
            if well
            else "stopping"
            if self._status.stopping
            else "the database cannot be read or written"
        )
        return PlainTextResponse(f"{said}\n", 200 if well else 503)

    async def _index_events(self, request: Request) -> Response:
        return self._stream(request, "", lambda: self._pages.index(whole=False))

    async def _campaign_events(self, request: Request) -> Response:
        name = (await run_in_threadpool(self._one, request)).id
        return self._stream(
            request, name, lambda: self._pages.campaign(self._one(request), whole=False)
        )

    def _stream(self, request: Request, name: str, render: Callable[[], str]) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if self._watching >= MOST_WATCHERS:
            raise HTTPException(503, "Too many are watching")
        return StreamingResponse(self._changes(name, render), media_type="text/event-stream")

    async def _changes(self, name: str, render: Callable[[], str]) -> AsyncIterator[str]:
        """The part of a page that changes, whenever it has changed."""
        before, said = "", time.monotonic()
        self._watching += 1
        try:
            while not self.stopping:
                text = await self._newest(name, render)
                if text != before:
                    yield (
                        "event: parts\n"
                        + "".join(f"data: {line}\n" for line in text.splitlines())
                        + "\n"
                    )
                    before, said = text, time.monotonic()
                elif time.monotonic() - said >= HEARTBEAT_SECONDS:
                    yield ":\n\n"
                    said = time.monotonic()
                await asyncio.sleep(EVERY_SECONDS)
        finally:
            self._watching -= 1

    async def _newest(self, name: str, render: Callable[[], str]) -> str:
        async with self._locks[name]:
            made, text = self._rendered.get(name, (0.0, ""))
            if time.monotonic() - made >= EVERY_SECONDS:
                text = await run_in_threadpool(render)
                self._rendered[name] = time.monotonic(), text
            return text

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return HTMLResponse(
            self._pages.message(error.detail, "Campaigns are listed on the first page."),
            error.status_code,
        )

    async def _failed(self, request: Request, error: Exception) -> Response:
        log.error("a page failed", extra={"path": request.url.path, "raised": place_of(error)})
        text = "The log of the server says more; reports are taken in as long as /healthz says ok."
        return HTMLResponse(
            self._pages.message("This page could not be made", text), 500, headers=HEADERS
        )


class _Impatient(H11Protocol):
    """A connection that must ask for something soon."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(PATIENCE_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if self.cycle is None:
            self.transport.close()


class _Headers:
    """Puts the headers on every response."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_with(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((k.lower().encode(), v.encode()) for k, v in HEADERS.items()),
                ]
            await send(message)

        await self._app(scope, receive, send_with)


def _found(value: Any) -> Any:
    if value is None:
        raise HTTPException(404, "There is no such page")
    return value


@contextmanager
def web_page(port: int, *, store: Store, key: bytes, status: ProcessStatus) -> Iterator[None]:
    """The page on a port of this machine, in a separate thread."""
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise BadInput(f"--http is {port}: {error.strerror}; accepted is a free port") from None
    site = Site(store, key, status)
    server = uvicorn.Server(
        uvicorn.Config(
            site.app(),
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            lifespan="off",
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=2,
            http=_Impatient,
        )
    )
    thread = threading.Thread(target=server.run, args=([listening],), name="page", daemon=True)
    thread.start()
    log.info("page", extra={"address": f"http://{HOST}:{listening.getsockname()[1]}/"})
    try:
        yield
    finally:
        site.stopping = server.should_exit = True
        thread.join()
        listening.close()
