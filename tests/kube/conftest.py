"""A real API server as most tests here meet it: a client of ours, and a namespace for each test."""

import itertools

import pytest

from kube.following import connected

_numbers = itertools.count(1)


@pytest.fixture
async def client(api_server):
    async with connected(api_server) as client:
        yield client


@pytest.fixture
def namespace(api_server, request):
    word = request.module.__name__.rpartition("test_")[2].replace("_", "-")
    return api_server.make_namespace(f"{word}-{next(_numbers)}")
