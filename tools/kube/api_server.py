"""Starts a real API server with its etcd, for tests that need only the Kubernetes API.

`with started(directory) as server:` starts it alone on loopback; a whole cluster starts the same programs inside its
namespaces. Authentication and RBAC are on, and anonymous requests are rejected. Both programs can be stopped and
started again on the same port with the same data, while clients are connected.
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.kube.certificates import Authority, service_account_key
from tools.kube.process import Failed, Program, wait_for
from tools.ports import free_port

from tools.kube import build, kubeconfig, left_over

PROGRAMS = ("kube-apiserver", "etcd", "kubectl")
ISSUER = "https://kubernetes.default.svc.cluster.local"
# Seconds. This is generous, because a machine that builds and tests at the same time is slow; a program that exits is
# reported at once.
PATIENCE = 180.0


class RequestFailed(Exception):
    """The API server returned an error; `status` is the HTTP status code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class ApiServer:
    """An etcd and a kube-apiserver that listen on `address`. `joined` is the `nsenter …` command that starts them in
    other namespaces."""

    def __init__(
        self,
        directory: Path,
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        joined: Sequence[str] = (),
        arguments: Sequence[str] = (),
        names: tuple[str, ...] = (),
        records: Path | None = None,
    ) -> None:
        self.directory = directory
        self._records = records
        self.port = port or free_port()
        self.server = f"https://{address}:{self.port}"
        self.keys = directory / "keys"
        self.kubeconfig = directory / "admin.kubeconfig"
        exists = self.kubeconfig.exists()
        if not exists:
            _make_keys(self.keys, (address, *names))
        self.ca = self.keys / "ca.crt"
        self.certificate = self.keys / "admin.crt"
        self.key = self.keys / "admin.key"
        self.token = (self.keys / "tokens.csv").read_text().partition(",")[0]
        if not exists:
            kubeconfig.write(self.kubeconfig, self.server, self.ca, self.certificate)
        self._etcd_url = f"https://{address}:{2379 if joined else free_port()}"
        peer = f"http://127.0.0.1:{2380 if joined else free_port()}"
        self._joined = tuple(joined)
        self.etcd = self._program("etcd", _etcd_arguments(directory, self.keys, self._etcd_url, peer))
        command = [*_arguments(self.keys, address, self.port, self._etcd_url), *arguments]
        self.api = self._program("kube-apiserver", command)

    def start(self) -> None:
        self.etcd.start()
        self.start_api()

    def start_api(self) -> None:
        """Start kube-apiserver and wait until `/readyz` succeeds."""
        self.api.start()
        wait_for(self.ready, "the API server", self._check, timeout=PATIENCE)

    def restart_api(self, *, kill: bool = False) -> None:
        self.api.stop(kill=kill)
        self.start_api()

    def stop(self) -> None:
        """Kill both programs. A graceful shutdown is not needed for test data."""
        self.api.stop(kill=True)
        self.etcd.stop(kill=True)

    def ready(self) -> bool:
        try:
            self.request("GET", "/readyz")
        except (RequestFailed, OSError):
            return False
        return True

    def request(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> Any:
        """Send a request to the API server as administrator and return the parsed response."""
        data = None if body is None else json.dumps(body).encode()
        text = self._ask(urllib.request.Request(self.server + path, data, {"Content-Type": kind}, method=method))
        return json.loads(text) if text.startswith((b"{", b"[")) else text.decode()

    def make_namespace(self, name: str, labels: dict[str, str] | None = None) -> str:
        """Create a namespace in which pods can be created: with the service account `default`, which usually a
        controller creates."""
        metadata = {"name": name, "labels": labels or {}}
        self.request("POST", "/api/v1/namespaces", {"metadata": metadata})
        self.make_default_account(name)
        return name

    def make_default_account(self, namespace: str) -> None:
        try:
            self.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
        except RequestFailed as failed:
            if failed.status != 409:
                raise

    def compact(self) -> int:
        """Compact etcd: delete all revisions before the current one, as etcd does after some minutes. Return the
        current revision."""
        key = base64.b64encode(b"/").decode()
        revision = int(self._ask_etcd("/v3/kv/range", {"key": key})["header"]["revision"])
        self._ask_etcd("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def lose(self, key: str) -> None:
        """Delete a key such as `/registry/pods/NAMESPACE/NAME` directly from etcd, without going through the API
        server."""
        encoded = base64.b64encode(key.encode()).decode()
        if not int(self._ask_etcd("/v3/kv/deleterange", {"key": encoded}).get("deleted", 0)):
            raise Failed(f"etcd has no key {key}")

    def _ask_etcd(self, path: str, body: Any) -> Any:
        return json.loads(self._ask(urllib.request.Request(self._etcd_url + path, json.dumps(body).encode())))

    def _ask(self, request: urllib.request.Request) -> bytes:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.certificate, self.key)
        # Ignore HTTP proxies of the environment: the cluster is on this machine.
        handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=30) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as failed:
            raise RequestFailed(failed.code, failed.read().decode(errors="replace")) from failed

    def _program(self, name: str, arguments: Sequence[str | Path]) -> Program:
        command = [*self._joined, build.path(name), *arguments]
        return Program(name, command, self.directory, joined=bool(self._joined), records=self._records)

    def _check(self) -> None:
        self.etcd.check()
        self.api.check()


@contextmanager
def started(directory: Path) -> Iterator[ApiServer]:
    """Run an API server alone on loopback for the duration of the block. Its programs must have been built.

    If this process is killed, the next process that starts an API server ends the remaining programs.
    """
    with left_over.recorded() as records:
        server = _start_alone(directory, records)
        try:
            wait_for(lambda: _has_namespace(server, "default"), "the first namespace", timeout=PATIENCE)
            server.make_default_account("default")
            yield server
        finally:
            server.stop()


def _start_alone(directory: Path, records: Path) -> ApiServer:
    """Start an API server; try again with other ports, up to three times, if another process has taken a port in the
    meantime."""
    for attempt in range(3):
        server = ApiServer(directory / f"{attempt}", arguments=["--endpoint-reconciler-type=none"], records=records)
        try:
            server.start()
        except Failed as failed:
            server.stop()
            if "address already in use" not in str(failed):
                raise
        except BaseException:
            server.stop()
            raise
        else:
            return server
    raise Failed(f"etcd or the API server found its port in use in three attempts; logs are in {directory}")


def _has_namespace(server: ApiServer, name: str) -> bool:
    try:
        server.request("GET", f"/api/v1/namespaces/{name}")
    except RequestFailed:
        return False
    return True


def _make_keys(keys: Path, hosts: tuple[str, ...]) -> None:
    authority = Authority(keys)
    service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    authority.server("etcd", (*hosts, "127.0.0.1"))
    authority.server("kube-apiserver", (*hosts, *service, "localhost", "127.0.0.1"))
    authority.client("admin", "admin", ("system:masters",))
    authority.client("kubelet-client", "kube-apiserver-kubelet-client", ("system:masters",))
    authority.client("kube-controller-manager", "system:kube-controller-manager")
    authority.client("kube-scheduler", "system:kube-scheduler")
    authority.client("kube-proxy", "system:kube-proxy")
    service_account_key(keys)
    tokens = keys / "tokens.csv"
    tokens.touch(mode=0o600)
    tokens.write_text(f'{secrets.token_hex(16)},token-admin,token-admin,"system:masters"\n')


def _etcd_arguments(directory: Path, keys: Path, url: str, peer: str) -> list[str]:
    return [
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--cert-file={keys / 'etcd.crt'}",
        f"--key-file={keys / 'etcd.key'}",
        f"--trusted-ca-file={keys / 'ca.crt'}",
        "--client-cert-auth",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        # The data is deleted after the test, so etcd need not wait for a slow disk.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _arguments(keys: Path, address: str, port: int, etcd: str) -> list[str]:
    return [
        f"--etcd-servers={etcd}",
        f"--etcd-cafile={keys / 'ca.crt'}",
        f"--etcd-certfile={keys / 'admin.crt'}",
        f"--etcd-keyfile={keys / 'admin.key'}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={port}",
        f"--tls-cert-file={keys / 'kube-apiserver.crt'}",
        f"--tls-private-key-file={keys / 'kube-apiserver.key'}",
        f"--client-ca-file={keys / 'ca.crt'}",
        f"--token-auth-file={keys / 'tokens.csv'}",
        f"--kubelet-client-certificate={keys / 'kubelet-client.crt'}",
        f"--kubelet-client-key={keys / 'kubelet-client.key'}",
        f"--kubelet-certificate-authority={keys / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={keys / 'service-account.pub'}",
        f"--service-account-signing-key-file={keys / 'service-account.key'}",
        # Controllers read these settings and log errors if they are missing; no authenticating proxy is used here.
        f"--requestheader-client-ca-file={keys / 'ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=Node,RBAC",
        "--anonymous-auth=false",
        "--allow-privileged=true",
        "--enable-admission-plugins=NodeRestriction",
        "--profiling=false",
    ]
