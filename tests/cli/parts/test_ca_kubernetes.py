"""The root of a cluster, shown and rotated by the command line, with a real API server."""

from __future__ import annotations

import asyncio
import base64
import threading
from datetime import timedelta

import pytest
from click.testing import CliRunner

from ca import making
from cluster.kubernetes import unique
from weft.ca.authority import Terms
from weft.ca.certificates import certificate_pem
from weft.cli.main import app
from weft.cluster.root_secret import RootSecret
from weft.install.manifests import manifests
from weft.install.values import AuthorityValues, Values
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
    """The part of a leading control plane that keeps the root. It runs in a thread, because the command has its own
    event loop."""
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


def phases(result):
    return [line.partition(":")[0] for line in result.stderr.splitlines()]


def test_a_rotation_is_followed_to_its_end(run, leading):
    old = run("show", "--pem").stdout
    result = run("rotate", "--propagation", "1s", "--wait")
    assert result.exit_code == 0, result.output
    assert phases(result) == ["announced", "fading", "steady"]
    new = run("show", "--pem").stdout
    assert new != old and new.count("BEGIN CERTIFICATE") == 1


def test_rotate_returns_when_the_rotation_has_begun_and_status_follows_it(run, leading):
    result = run("rotate", "--propagation", "3s")
    assert result.exit_code == 0 and phases(result)[0] == "announced", result.output
    assert "weft ca status --kubernetes" in result.stderr
    followed = run("status")
    assert followed.exit_code == 0 and phases(followed)[-2:] == ["fading", "steady"], followed.output
    assert phases(run("status")) == ["steady"]


def test_two_rotations_at_once_are_refused(run, leading):
    assert run("rotate", "--propagation", "1h").exit_code == 0
    result = run("rotate", "--propagation", "1h")
    assert result.exit_code == 1 and "under way" in result.stderr
    assert phases(run("status", "--no-follow")) == ["announced"]


ROOT_KEY, SIGNER_KEY = making.p256(), making.p256()
ROOT = making.ca("their root", ROOT_KEY)
SIGNER = making.ca("their signer", SIGNER_KEY, by=ROOT, by_key=ROOT_KEY)


def plug_in(server, namespace, directory, *, name="cacerts"):
    """Put the files of a CA into a Secret, as docs/kubernetes.md describes."""
    making.plug_in(directory, certificate=SIGNER, key=SIGNER_KEY, roots=[ROOT], chain=[SIGNER])
    data = {file.name: base64.b64encode(file.read_bytes()).decode() for file in directory.iterdir()}
    server.request("POST", f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": name}, "data": data})


def publish(server, namespace, roots):
    path, metadata = f"/api/v1/namespaces/{namespace}/configmaps", {"name": "istio-ca-root-cert"}
    server.request("POST", path, {"metadata": metadata, "data": {"root-cert.pem": roots}})


def test_a_ca_that_was_plugged_in_is_shown_as_such_and_not_rotated(run, api_server, namespace, leading, tmp_path):
    """The plugged-in CA is shown although weft's own root from before still exists."""
    plug_in(api_server, namespace, tmp_path)
    publish(api_server, namespace, certificate_pem(ROOT))
    result = run("show")
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("plugged-in, steady: one root is trusted, and an intermediate of it signs")
    assert "CN=their signer" in result.stdout and "CN=their root" in result.stdout
    assert run("show", "--pem").stdout == certificate_pem(ROOT)
    assert "PRIVATE" not in result.output + run("show", "-o", "json").output
    assert phases(run("status")) == ["steady"]
    refused = run("rotate")
    assert refused.exit_code == 1 and "plugged in" in refused.stderr


def test_a_plugged_in_ca_that_does_not_sign_yet_is_reported(run, api_server, namespace, leading, tmp_path):
    publish(api_server, namespace, run("show", "--pem").stdout)
    plug_in(api_server, namespace, tmp_path)
    result = run("show")
    assert "does not sign yet" in result.stderr and "kubectl rollout restart" in result.stderr
    assert "self-made for cluster.local, steady" in result.stderr


def test_a_ca_is_found_in_the_secret_that_was_chosen(run, api_server, namespace, tmp_path):
    plug_in(api_server, namespace, tmp_path, name="ours")
    for manifest in manifests(Values(namespace=namespace, ca=AuthorityValues(secret="ours"))):
        if manifest["kind"] == "Deployment":
            api_server.request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", manifest)
    assert "plugged-in" in run("show").stderr


def test_another_cluster_of_the_kubeconfig_can_be_chosen(run):
    for command in ("show", "rotate", "status"):
        result = run(command, "--context", "elsewhere")
        assert result.exit_code != 0 and "elsewhere" in str(result.exception) + result.stderr


def test_a_cluster_without_weft_is_an_error(run):
    result = run("show")
    assert result.exit_code == 1 and "weft install" in result.stderr
