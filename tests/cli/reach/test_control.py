"""A separate control plane, queried by its owner through the command line."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import click
import grpc
import pytest
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

from weft.base.ambiguous import Ambiguous
from weft.cli.reach.connect import reach
from weft.cli.reach.control import ControlReach, only_pods
from weft.local.error import LocalError

MESH = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: bank, namespace: shop}
spec:
  hosts: [bank.example.com]
  addresses: [192.0.2.70]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 192.0.2.7}]
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {address: 192.0.2.9, labels: {app: web}, serviceAccount: web}
"""
ROUTE = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: bank, namespace: shop}
spec:
  hosts: [bank.example.com]
  http: [{fault: {abort: {httpStatus: 418, percentage: {value: 100}}}, route: [{destination: {host: bank.example.com}}]}]
"""
CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"


class Running:
    def __init__(self, base):
        self.base, self.mesh, self.place = base, base / "mesh", base / "own"
        self.mesh.mkdir()
        (self.mesh / "mesh.yaml").write_text(MESH)
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "WEFT_RUN_DIR": str(base / "run"),
            "KUBECONFIG": "",
        }
        arguments = ("--config", self.mesh, "--listen", f"unix:{base}/xds.sock", "--debug", self.place)
        command = [sys.executable, "-m", "weft.cli", "control", *map(str, arguments)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=self.environment)
        for line in self.process.stderr:
            if "query this control plane with" in line:
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def weft(self, *arguments):
        command = [sys.executable, "-m", "weft.cli", *map(str, arguments), "--mesh", str(self.place)]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60, check=False, cwd=self.base
        )


@pytest.fixture(scope="module")
def running():
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        found = Running(Path(base))
        yield found
        found.process.send_signal(signal.SIGTERM)
        assert found.process.wait(timeout=60) == 0
        assert not found.place.exists()


@pytest.fixture
def proxy(running):
    """A connected proxy, which has its clusters."""
    with grpc.insecure_channel(f"unix:{running.base}/xds.sock") as channel:
        node = {"id": "sidecar~192.0.2.9~web-0.shop~shop.svc.cluster.local"}
        stop = threading.Event()

        def requests():
            yield discovery_pb2.DiscoveryRequest(node=node, type_url=CLUSTER)
            stop.wait()

        stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
        stream = stub.StreamAggregatedResources(requests(), timeout=60, wait_for_ready=True)
        next(stream)
        yield "web-0.shop"
        stop.set()
        stream.cancel()


def test_a_path_leads_to_it(running, proxy):
    found = reach(str(running.place))
    assert isinstance(found, ControlReach)
    assert found.names() == [proxy]
    assert [str(each) for each in found.find_all("web")] == [proxy] and str(found.find("web-0", "shop")) == proxy
    assert found.directory() == running.mesh
    assert list(found.ask_all("version")) == ["weft"]


def test_without_a_name_it_is_found_where_it_usually_is(monkeypatch, running):
    monkeypatch.setenv("WEFT_RUN_DIR", str(running.base / "usual"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    (running.base / "usual").mkdir()
    (running.base / "usual" / ".control").symlink_to(running.place)
    found = reach()
    assert isinstance(found, ControlReach) and found.place.name == ".control"


def test_istioctl_can_query_only_the_stream_of_its_owner(running, proxy):
    def asked(path):
        request = discovery_pb2.DiscoveryRequest(type_url="istio.io/debug/syncz")
        request.node.id = "sidecar~10.0.0.1~test-1.default~default.svc.cluster.local"
        with grpc.insecure_channel(f"unix:{path}") as channel:
            stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
            return next(stub.StreamAggregatedResources(iter([request]), timeout=20, wait_for_ready=True))

    assert len(asked(running.place / "xds.sock").resources) == 1
    with pytest.raises(grpc.RpcError):
        asked(running.base / "xds.sock")


def test_proxies_are_listed_from_their_sync_state(running, proxy):
    done = running.weft("proxy-status")
    assert done.returncode == 0, done.stderr
    assert proxy in done.stdout


def test_unconnected_proxies_and_unsupported_queries_are_errors_with_a_hint(running, proxy, capsys):
    found = ControlReach(running.place)
    for ask, said in (
        (lambda: found.find("wbe-0.shop"), "did you mean `web-0.shop`?"),
        (lambda: found.admin(found.find("web"), "/stats"), "curl -s localhost:15000/stats"),
        (lambda: only_pods(found, "an audit"), "weft control runs no pods"),
    ):
        with pytest.raises(click.exceptions.Exit):
            ask()
        assert said in capsys.readouterr().err
    with pytest.raises(LocalError, match="weft control does not answer"):
        ControlReach(running.base).ask("syncz")


def test_what_it_serves_is_analyzed(running):
    found = running.weft("analyze", "-o", "json")
    assert f"weft control at {running.place}: 2 objects" in found.stderr
    assert isinstance(json.loads(found.stdout), list)


def test_explain_diff_and_history_work_as_with_a_mesh(running):
    def explained(*more):
        done = running.weft("explain", "web", "--to", "http://bank.example.com/", "-n", "shop", *more)
        return done.stdout.splitlines()[-1] if done.returncode == 0 else done.stderr

    assert explained().startswith("→ delivered") or explained().startswith("→ passed on"), explained()
    route = running.base / "route.yaml"
    route.write_text(ROUTE)
    foretold = running.weft("diff", "-f", route)
    assert foretold.returncode == 1, foretold.stderr
    assert foretold.stdout.startswith("added VirtualService shop/bank (route.yaml:2)\n")
    assert "recent traffic is not compared" in foretold.stderr
    route.rename(running.mesh / "route.yaml")
    for _ in range(200):
        if "418" in explained():
            break
    assert "answered 418" in explained()
    shown = running.weft("history").stdout
    assert "VirtualService shop/bank added" in shown
    past = running.weft("diff", "@-1", "-o", "json")
    assert past.returncode == 1, past.stderr
    assert [each["object"]["name"] for each in json.loads(past.stdout)["objects"]] == ["bank"]
    assert "418" not in explained("--at", "@-1")


def test_which_of_two_namespaces_is_meant_is_not_guessed(monkeypatch, tmp_path):
    control = ControlReach(tmp_path)
    monkeypatch.setattr(control, "names", lambda: ["web-0.bank", "web-0.shop", "till-0.shop"])
    assert str(control.find("web", "shop")) == str(control.find("web-0.shop")) == "web-0.shop"
    assert str(control.find("till")) == "till-0.shop"
    for word in ("web", "web-0", "deploy/web"):
        with pytest.raises(Ambiguous, match="in several namespaces: bank, shop"):
            control.find(word)
    assert str(control.find("bank/web")) == "web-0.bank"  # the form in the hint
