from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.process import Failed, Running
from tools.ports import free_port

from bench import load

PROGRAM = str(Path(load.__file__))


@pytest.fixture
def port():
    number = free_port()
    with Running([sys.executable, PROGRAM, "server", str(number)]) as server:
        assert server.line() == "ready"
        yield number


@pytest.fixture
def client():
    with Running([sys.executable, PROGRAM, "client"]) as running:
        yield running


def order(port, **changes):
    base = {"address": "127.0.0.1", "port": port, "host": "x", "connections": 4, "rate": 0, "seconds": 0.1}
    return base | changes


def test_sends_requests_at_the_configured_rate(port, client):
    answer = client.ask(order(port, rate=200, seconds=0.5))
    assert answer["requests"] == 100
    assert answer["seconds"] >= 0.5
    assert 0 < answer["p50"] <= answer["p99"]


def test_sends_requests_at_full_speed_and_reuses_its_connections(port, client):
    first = client.ask(order(port))
    second = client.ask(order(port))
    assert min(first["requests"], second["requests"]) > 4


def test_reports_why_it_failed(client):
    with pytest.raises(Failed, match="refused"):
        client.ask(order(free_port()))
