"""The real istioctl gets the sync status of proxies from weft's control plane, as from istiod: over a stream, on the
socket of this machine's owner or on the port with TLS."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess

import pytest

from control.proxy import changes
from control.test_plane import ORDERS
from e2e.objects import http_service, text, workload
from e2e.test_istioctl import KUBECONFIG
from relay_rig import Cluster, Placed
from weft.control.plane import ControlPlane
from weft.inspect.attach import attach_debug
from weft.local.run_directory import socket_of

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


def files(control):
    return {
        "client.yaml": text(workload("client", control=control)),
        "app.yaml": text(workload("app", control=control, serve="http=8080"), http_service("app")),
    }


@pytest.fixture
def run(istioctl, tmp_path):
    (tmp_path / "kubeconfig").write_text(json.dumps(KUBECONFIG))

    async def run(*words: str) -> subprocess.CompletedProcess[str]:
        # Without a revision it first queries a cluster for the default one, without a timeout.
        revision = () if words[0] == "proxy-config" else ("--revision", "default")
        command = [str(istioctl), *words, *revision, "--kubeconfig", str(tmp_path / "kubeconfig")]
        return await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=120, check=False
        )

    return run


@pytest.fixture
def owner(mesh):
    socket = socket_of(mesh.engine.name).with_name("owner") / "xds.sock"
    return ("--xds-address", f"unix://{socket}", "--plaintext")


async def test_it_lists_the_proxies_of_a_mesh_on_one_machine(run, owner, mesh):
    done = await run("proxy-status", *owner)
    header, *rows = [re.split(r" {2,}", line.strip()) for line in done.stdout.splitlines()]
    assert header == ["NAME", "CLUSTER", "ISTIOD", "VERSION", "SUBSCRIBED TYPES"], done.stderr
    assert [row[:3] for row in rows] == [
        ["app-0.shop", "Kubernetes", mesh.engine.name],
        ["client-0.shop", "Kubernetes", mesh.engine.name],
    ]
    assert {row[4] for row in rows} == {"4 (CDS,LDS,EDS,RDS)"}


async def test_it_shows_the_state_of_each_type(run, owner):
    done = await run("proxy-status", "-v", "1", *owner)
    header, first, _ = [re.split(r" {2,}", line.strip()) for line in done.stdout.splitlines()]
    found = dict(zip(header, first, strict=True))
    assert all(found[kind].startswith("SYNCED") for kind in ("CDS", "LDS", "EDS", "RDS")), done.stdout
    assert found["ECDS"] == "IGNORED"


async def test_it_finds_nothing_that_differs_between_what_was_sent_and_what_envoy_has(run, owner, mesh, tmp_path):
    for name in ("client", "app"):
        dump = await mesh.engine.find_pod(name).proxy.admin.read("/config_dump", {})
        (tmp_path / "dump.json").write_bytes(dump)
        done = await run("proxy-status", f"{name}-0.shop", "--file", str(tmp_path / "dump.json"), *owner)
        assert "Don't Match" not in done.stdout, done.stdout
        assert [line.split()[:2] for line in done.stdout.splitlines()] == [
            ["Clusters", "Match"],
            ["Listeners", "Match"],
            ["Routes", "Match"],
        ], done.stderr


async def test_the_socket_of_the_proxies_rejects_istioctl(run, mesh):
    done = await run(
        "proxy-status", "--xds-address", f"unix://{socket_of(mesh.engine.name).with_name('xds.sock')}", "--plaintext"
    )
    assert done.returncode == 1 and "PermissionDenied" in done.stderr


async def test_it_reads_every_page(run, owner):
    for page, said in (
        ("syncz", '"proxy": "app-0.shop"'),
        ("registryz", "app.shop.svc.cluster.local"),
        ("adsz", "watches"),
    ):
        done = await run("x", "internal-debug", page, *owner)
        assert said in done.stdout, done.stderr
    done = await run("x", "internal-debug", "--list", *owner)
    assert "endpointz" in done.stdout, done.stderr


async def test_it_shows_the_config_after_a_first_call(run, owner, tmp_path):
    page = 'first_call?question={"proxy":"client-0.shop","hosts":["app"]}'
    done = await run("x", "internal-debug", page, *owner)
    (tmp_path / "after.json").write_text(done.stdout)
    done = await run("proxy-config", "clusters", "--file", str(tmp_path / "after.json"))
    assert "app.shop.svc.cluster.local" in done.stdout, done.stderr


async def test_the_tls_port_serves_istioctl_only_with_a_certificate_of_the_control_planes_namespace(run, tmp_path):
    placed = Placed()
    plane = ControlPlane(placements=placed, replica="istiod-1")
    attach_debug(plane, "istio-system")
    made = Cluster(plane, placed)
    plane.apply(changes(ORDERS))
    await made.open()
    try:
        for namespace, told in (("istio-system", True), ("shop", False)):
            directory = tmp_path / namespace
            directory.mkdir()
            chain, key = made.certificate(namespace, "default")
            (directory / "cert-chain.pem").write_text(chain)
            (directory / "key.pem").write_bytes(key)
            (directory / "root-cert.pem").write_text("".join(made.authority.bundle()))
            to = ("--xds-address", made.address, "--cert-dir", str(directory), "--authority", "istiod.istio-system.svc")
            done = await run("x", "internal-debug", "registryz", *to)
            assert ("orders.shop.svc.cluster.local" in done.stdout) is told, done.stderr
            assert (done.returncode == 0) is told
            done = await run("proxy-status", *to)
            assert (done.returncode == 0) is told, done.stderr
    finally:
        await made.close()
