"""A real API server as tests of the control plane meet it: a client of ours, as administrator."""

import pytest

from kube.following import connected


@pytest.fixture
async def client(api_server):
    async with connected(api_server) as client:
        yield client
