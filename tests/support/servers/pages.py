"""Requests to the page of a server."""

import http.client

import pytest

from tests.support.servers.browser import CHROMIUM
from tests.support.servers.servers import Running, page_port

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")


def get(
    server: Running, path: str, method: str = "GET", host: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    link = http.client.HTTPConnection("127.0.0.1", page_port(server), timeout=30)
    try:
        link.request(method, path, headers={} if host is None else {"Host": host})
        answer = link.getresponse()
        return (
            answer.status,
            {name.lower(): value for name, value in answer.getheaders()},
            answer.read(),
        )
    finally:
        link.close()
