"""A real API server, and an administrator's client for it."""

import pytest

from kube.following import connected


@pytest.fixture
async def client(api_server):
    async with connected(api_server) as client:
        yield client
