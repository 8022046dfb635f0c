"""A mesh whose parts are separate processes, as on a cluster: `weft control`, `weft node`, and pods with real Envoys
that are children of neither, so that each part can be killed while the others run.

This file plays kubelet (tokens in files, a registration for each pod) and the machine's supervisor. Rule: tests wait
only for what is visible from outside: the output of a part, the certificate that a proxy presents, the response that
a caller gets.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Any, NamedTuple

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tools.ports import free_port

from e2e import objects
from e2e.mesh import tell, unique_name
from eventually import eventually
from weft.envoy.binary import find
from weft.envoy.bootstrap import Bootstrap, BootstrapNode, Unix
from weft.netns import links, namespace
from weft.netns.interception import Interception
from weft.netns.namespace import NetworkNamespace, socket_in
from weft.netns.process import Spawn, end, spawn
from weft.netns.view import View
from weft.node.proxy import ProxyPlan, SupervisedProxy

ISSUER = "https://issuer.example"
BRIDGE = IPv4Interface("10.91.0.1/24")
TOKEN_LIFE = timedelta(seconds=60)
TOKEN_REFRESH = 10.0  # seconds


class Part:
    """One weft process, and the output of it and of its predecessors."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str | Path) -> None:
        # With a higher priority: a certificate of seconds leaves tenths of a second for its renewal, one of a day
        # leaves hours.
        command = ["nice", "-n", "-10", sys.executable, "-m", "weft.cli", *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def kill(self) -> float:
        """Send SIGKILL; returns the time."""
        self._end(signal.SIGKILL)
        return time.time()

    def end(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(15)
            self._process = None

    def said(self, since: int = 0) -> str:
        return self.log.read_bytes()[since:].decode() if self.log.exists() else ""

    @property
    def mark(self) -> int:
        """The current end of the output."""
        return self.log.stat().st_size if self.log.exists() else 0

    async def until_said(self, words: str, since: int = 0, timeout: float = 30.0) -> None:
        try:
            await eventually(lambda: words in self.said(since), limit=timeout)
        except AssertionError:
            raise AssertionError(f"it never said `{words}`:\n{self.said()[-4000:]}") from None


class Presented(NamedTuple):
    """A certificate that a proxy presented in a handshake."""

    seen: float
    serial: int
    issuer: str
    ends: float

    @property
    def left(self) -> float:
        """Remaining lifetime in seconds."""
        return self.ends - time.time()


class Tokens:
    """What kubelet does for a pod: a short-lived token in a file, renewed in time."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())

    def write_keys(self, file: Path) -> None:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        file.write_bytes(self._key.public_key().public_bytes(serialization.Encoding.PEM, form))

    def write(self, file: Path, account: str, pod: str, pod_uid: str) -> None:
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": ["istio-ca"],
            "sub": f"system:serviceaccount:{objects.NAMESPACE}:{account}",
            "iat": now,
            "nbf": now,
            "exp": now + int(TOKEN_LIFE.total_seconds()),
            "kubernetes.io": {
                "namespace": objects.NAMESPACE,
                "serviceaccount": {"name": account, "uid": str(uuid.uuid4())},
                "pod": {"name": pod, "uid": pod_uid},
            },
        }
        fresh = file.with_suffix(".new")
        fresh.write_text(jwt.encode(claims, self._key, algorithm="ES256"))
        fresh.replace(file)


class Pod:
    """A namespace with an address, an app, an Envoy, and the rules that redirect the app's traffic through the
    Envoy."""

    def __init__(self, mesh: Separate, name: str, number: int, serve: str) -> None:
        self.mesh, self.name, self.serve = mesh, name, serve
        self.address = IPv4Address(int(BRIDGE.ip) + number)
        self.namespace = NetworkNamespace(f"{mesh.name}-{name}")
        self.uid = 30_000 + number
        self.pod_uid = str(uuid.uuid4())
        self.presented: list[Presented] = []
        self._log = mesh.open / f"{name}.log"
        self._link = links.PodLink(self.namespace, mesh.bridge, self.address)
        self._app: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def token_file(self) -> Path:
        return self.mesh.closed / f"{self.name}.token"

    @property
    def sds_socket(self) -> Path:
        return self.mesh.closed / f"sds-{self.name}" / "sds.sock"

    @property
    def serials(self) -> list[int]:
        return list(dict.fromkeys(each.serial for each in self.presented))

    def document(self) -> objects.Document:
        return {
            "apiVersion": "networking.istio.io/v1",
            "kind": "WorkloadEntry",
            "metadata": {"name": self.name, "namespace": objects.NAMESPACE, "labels": {"app": self.name}},
            "spec": {"address": str(self.address), "serviceAccount": self.name},
        }

    def register(self) -> None:
        self.mesh.tokens.write(self.token_file, self.name, self.name, self.pod_uid)
        registration = {
            "namespace": objects.NAMESPACE,
            "pod": self.name,
            "pod_uid": self.pod_uid,
            "service_account": self.name,
            "token_file": str(self.token_file),
            "socket": str(self.sds_socket),
            "network_namespace": str(self.namespace.path),
        }
        (self.mesh.registrations / f"{self.name}.json").write_text(json.dumps(registration))

    async def start(self) -> None:
        namespace.make(self.namespace.name)
        links.connect(self._link)
        self.register()
        await eventually(self.sds_socket.exists)
        directory = self.mesh.open / self.name
        directory.mkdir(mode=0o755)
        node = BootstrapNode(
            name=self.name,
            namespace=objects.NAMESPACE,
            addresses=(str(self.address),),
            service_account=self.name,
            labels={"app": self.name},
        )
        plan = ProxyPlan(
            bootstrap=Bootstrap(node=node, xds=Unix(str(self.mesh.xds_socket)), sds=Unix(str(self.sds_socket))),
            binary=find(),
            namespace=self.namespace,
            directory=directory,
            interception=Interception(),
            sockets=(str(self.mesh.xds_socket.parent), str(self.sds_socket.parent)),
        )
        self.proxy = SupervisedProxy(plan, synced=_at_once, changed=lambda: None, output=self._keep)
        self._running = asyncio.create_task(self.proxy.run())
        await eventually(lambda: self.proxy.ready, limit=40)
        self._app = await spawn(
            Spawn(
                argv=(sys.executable, "pod.py"),
                namespace=self.namespace,
                uid=self.uid,
                gid=self.uid,
                environment={"POD_NAME": self.name, "SERVE": self.serve, "CONTROL": str(self.mesh.sockets)},
                working_directory=str(objects.APPS),
                view=View(visible=(str(objects.APPS), sys.prefix, sys.base_prefix, str(self.mesh.sockets))),
            )
        )
        await self.tell("who")

    async def tell(self, command: str, **arguments: Any) -> Any:
        return await tell(self.mesh.sockets, self.name, command, **arguments)

    async def restart_proxy(self) -> None:
        restarts = self.proxy.restarts
        os.kill(self.proxy.pid, signal.SIGKILL)
        await eventually(lambda: self.proxy.restarts > restarts and self.proxy.ready, limit=40)

    async def trusted(self) -> set[str]:
        """Serials of the roots that its Envoy trusts, from Envoy's admin API."""
        said = json.loads(await self.proxy.admin.read("/certs", {}))
        return {each["serial_number"] for entry in said["certificates"] for each in entry.get("ca_cert", ())}

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    async def _keep(self, output: asyncio.StreamReader) -> None:
        with self._log.open("ab", buffering=0) as file:
            while some := await output.read(65536):
                file.write(some)

    async def look(self) -> None:
        """Make one handshake from outside of the mesh; a caller without a certificate still gets the proxy's
        certificate."""
        connection = socket_in(self.mesh.bridge.namespace, socket.AF_INET)
        try:
            async with asyncio.timeout(5):
                await asyncio.get_running_loop().sock_connect(connection, (str(self.address), 8080))
                _, writer = await asyncio.open_connection(sock=connection, ssl=_LOOK, server_hostname="")
        except (OSError, TimeoutError):  # its Envoy is being started
            connection.close()
            return
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
        leaf = x509.load_der_x509_certificate(shown)
        issuer, ends = leaf.issuer.rfc4514_string(), leaf.not_valid_after_utc.timestamp()
        self.presented.append(Presented(time.time(), leaf.serial_number, issuer, ends))

    async def end(self) -> None:
        if self._app is not None:
            await end(self._app, 2.0)
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        if namespace.exists(self.namespace):
            links.disconnect(self._link)
            namespace.delete(self.namespace)


async def _at_once(node_id: str, timeout: float) -> bool:
    return True


def _looking() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


_LOOK = _looking()


class Separate:
    def __init__(self) -> None:
        self.name = unique_name("apart")
        self.open = Path(tempfile.mkdtemp(prefix="weft-apart-", dir="/tmp"))
        self.open.chmod(0o755)
        # Only root can enter it, so that a pod sees only what is mounted for it, as with a volume on a cluster.
        self.closed = self.open / "closed"
        self.registrations = self.closed / "workloads"
        self.config, self.ca, self.sockets = self.open / "config", self.closed / "ca", self.open / "sockets"
        for directory, mode in (
            (self.closed, 0o700),
            (self.registrations, 0o700),
            (self.config, 0o755),
            (self.sockets, 0o777),
            (self.open / "xds", 0o755),
        ):
            directory.mkdir()
            directory.chmod(mode)
        self.xds_socket = self.open / "xds" / "xds.sock"
        self.bridge = links.Bridge(NetworkNamespace(f"{self.name}-net"), BRIDGE)
        self.tokens = Tokens()
        self.tokens.write_keys(self.open / "token-keys.pem")
        self.control, self.agent = Part(self.open / "control.log"), Part(self.open / "agent.log")
        self.pods: dict[str, Pod] = {}
        self._ca_port = free_port()
        self._tasks: list[asyncio.Task[None]] = []

    def write(self, file: str, *documents: objects.Document) -> None:
        beside = self.config / f".{file}.tmp"
        beside.write_text(objects.text(*documents))
        beside.replace(self.config / file)

    async def start_control(self, *, skew: str) -> None:
        since = self.control.mark
        self.control.start(
            *("control", "--config", self.config, "--listen", f"unix:{self.xds_socket}"),
            *("--ca", self.ca, "--ca-listen", f"127.0.0.1:{self._ca_port}", "--clock-skew", skew),
            *("--token-keys", self.open / "token-keys.pem", "--token-issuer", ISSUER),
        )
        await self.control.until_said("serving the CA", since)

    async def start_agent(self, *, certificate_ttl: str) -> None:
        since = self.agent.mark
        self.agent.start(
            *("node", "--workloads", self.registrations, "--certificate-ttl", certificate_ttl),
            *("--ca", f"127.0.0.1:{self._ca_port}", "--ca-root", self.ca / "bundle.pem"),
        )
        await self.agent.until_said("watching the registrations", since)

    async def add(self, name: str, serve: str = "") -> Pod:
        pod = self.pods[name] = Pod(self, name, len(self.pods) + 2, serve)
        self.write(f"{name}.yaml", pod.document())
        await pod.start()
        return pod

    async def watch(self) -> None:
        """Record every proxy's certificate from now on, and renew tokens."""
        self._tasks += [asyncio.create_task(self._look()), asyncio.create_task(self._refresh())]
        await eventually(lambda: all(pod.presented for pod in self.pods.values()))

    async def new_certificates(self) -> None:
        """Wait until every proxy presents another certificate than now."""
        before = {name: pod.presented[-1].serial for name, pod in self.pods.items()}
        await eventually(
            lambda: all(pod.presented[-1].serial != before[pod.name] for pod in self.pods.values()), limit=30
        )

    def last_words(self) -> str:
        """The last output of every part, for the analysis of a failed test."""
        said = {"control": self.control.said(), "agent": self.agent.said()}
        said |= {name: pod.log() for name, pod in self.pods.items()}
        return "\n".join(f"--- {name}:\n{text[-5000:]}" for name, text in said.items())

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for pod in self.pods.values():
            await pod.end()
        for part in (self.agent, self.control):
            part.end()
        if namespace.exists(self.bridge.namespace):
            namespace.delete(self.bridge.namespace)
        shutil.rmtree(self.open)

    async def _look(self) -> None:
        while True:
            for pod in self.pods.values():
                await pod.look()
            await asyncio.sleep(0.2)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(TOKEN_REFRESH)
            for pod in self.pods.values():
                self.tokens.write(pod.token_file, pod.name, pod.name, pod.pod_uid)


def weft(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start a command of the CLI, with stdout and stderr together."""
    return subprocess.Popen(
        [sys.executable, "-m", "weft.cli", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@contextlib.asynccontextmanager
async def separate_mesh() -> AsyncIterator[Separate]:
    mesh = Separate()
    try:
        namespace.make(mesh.bridge.namespace.name)
        links.make_bridge(mesh.bridge)
        yield mesh
    except BaseException:
        sys.stderr.write(mesh.last_words())
        raise
    finally:
        await mesh.close()
