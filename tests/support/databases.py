"""The databases that the server runs on."""

import pytest

from tests.support.postgres import binaries

needs_postgres = pytest.mark.skipif(
    binaries() is None, reason="no PostgreSQL: neither the package pgserver nor initdb here"
)
DATABASES = [pytest.param("sqlite"), pytest.param("postgres", marks=needs_postgres)]
