"""The root of a cluster, by the command line, against a real API server."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from control.kubernetes import unique
from weft.ca.authority import Terms
from weft.cli.main import app
from weft.control.root_secret import RootSecret
from weft.kube.client import Client
from weft.kube.config import load


@pytest.fixture
def namespace(api_server):
    return api_server.make_namespace(unique("ca"))


@pytest.fixture
def run(api_server, namespace):
    def run(*arguments):
        where = ["--kubernetes", "--kubeconfig", str(api_server.kubeconfig), "--namespace", namespace]
        return CliRunner().invoke(app, ["ca", *arguments, *where])

    return run


@pytest.fixture
def leading(api_server, namespace):
    """A control plane, as far as its root goes, that leads; in a thread, because the command has a loop of its own."""
    ended, begun = threading.Event(), threading.Event()
    terms = Terms(lifetime=timedelta(seconds=1), skew=timedelta(0))

    async def lead():
        async with Client(load(api_server.kubeconfig)) as client:
            secret = RootSecret(client, namespace, "cluster.local", terms)
            authority = await secret.open()
            authority.lead()
            tasks = [asyncio.create_task(secret.run()), asyncio.create_task(authority.run())]
            begun.set()
            while not ended.is_set():
                secret.rotate_if_asked()
                await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(lead()))
    thread.start()
    assert begun.wait(20)
    yield
    ended.set()
    thread.join()


def test_the_root_is_shown_and_never_its_key(run, leading):
    result = run("show")
    assert result.exit_code == 0, result.output
    assert "steady" in result.stderr
    assert run("show", "--pem").stdout.startswith("-----BEGIN CERTIFICATE-----")
    assert "PRIVATE" not in result.output + run("show", "-o", "json").output + run("show", "--pem").output


def test_a_rotation_is_followed_to_its_end(run, leading):
    old = run("show", "--pem").stdout
    result = run("rotate", "--propagation", "1s")
    assert result.exit_code == 0, result.output
    phases = [line.partition(":")[0] for line in result.stderr.splitlines()]
    assert phases == ["announced", "fading", "steady"]
    new = run("show", "--pem").stdout
    assert new != old and new.count("BEGIN CERTIFICATE") == 1


def test_two_rotations_at_once_are_refused(run, leading):
    assert run("rotate", "--propagation", "1h", "--no-wait").exit_code == 0
    result = run("rotate", "--propagation", "1h", "--no-wait")
    assert result.exit_code == 1 and "under way" in result.stderr


def test_a_cluster_without_weft_is_told(run):
    result = run("show")
    assert result.exit_code == 1 and "weft install" in result.stderr
