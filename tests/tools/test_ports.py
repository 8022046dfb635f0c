"""A port that was given out is still free when a program listens on it."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tools.ports import free_port


def test_the_port_is_outside_of_the_ephemeral_range():
    first, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert all(1024 < free_port() < first for _ in range(50))


def test_a_port_is_given_out_once():
    given = [free_port() for _ in range(50)]
    assert len(set(given)) == 50


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_in_use_is_skipped(kind):
    before = free_port()
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", before + 1))
        assert free_port() != before + 1


def test_two_processes_never_get_the_same_port():
    before = free_port()
    asked = "import tools.ports as p; p._numbers = iter([{0}, {0} + 1]); print(p.free_port())".format(before - 20_000)
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert int(said) == before + 1
