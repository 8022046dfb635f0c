"""Real handshakes with a running mesh: which credentials are presented, which callers are admitted, and what is
logged."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption

from ca.making import verifies
from e2e.mesh import control_directory, tell, unique_name
from e2e.objects import http_service, istio, service, text, workload
from e2e.outside import TLS_CLIENTS, Credentials, Outcome, Outside, TrustCenter
from eventually import eventually_blocking
from weft.base.key_search import files_below, search, started_with
from weft.ca.authority import Terms
from weft.ca.certificates import certificate_pem
from weft.local.client import fetch_admin, fetch_status, read_logs
from weft.local.error import LocalError
from weft.local.run_directory import namespace_prefix
from weft.local.status import MeshStatus, PodPhase, PodStatus
from weft.netns import namespace
from weft.netns.namespace import NetworkNamespace, processes_in

pytestmark = pytest.mark.root

FRIEND = "spiffe://cluster.local/ns/elsewhere/sa/friend"
WEFT = (sys.executable, "-m", "weft.cli")
TTL = 300  # seconds
SKEW = Terms().skew.total_seconds()  # a certificate is valid this much earlier, for clocks that are late


def security(kind: str, name: str, spec: dict[str, Any], namespace: str = "shop") -> dict[str, Any]:
    document = istio(kind, name, spec, namespace)
    return {**document, "apiVersion": "telemetry.istio.io/v1" if kind == "Telemetry" else "security.istio.io/v1"}


def peer_authentication(app: str, mode: str) -> dict[str, Any]:
    return security("PeerAuthentication", app, {"selector": {"matchLabels": {"app": app}}, "mtls": {"mode": mode}})


class Running:
    """One `weft up` with a plugged-in CA, as a process, and a caller outside of it."""

    def __init__(self, home: Path) -> None:
        self.home, self.name = home, unique_name("hands")
        self.directory, self.sockets, self.log = home / "mesh", control_directory(), home / "weft.log"
        (home / "made").mkdir()
        self.trust = TrustCenter(home / "made")
        self.directory.mkdir()
        self.write("mesh.yaml", self._objects())
        trust = ("--ca", str(self.trust.directory), "--certificate-ttl", f"{TTL}s")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*WEFT, "up", str(self.directory), "--name", self.name, "--no-live", *trust],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.outside = Outside(NetworkNamespace(f"{namespace_prefix(self.name)}mesh"), self.trust.bundle)
        self.friend = self.trust.of(FRIEND)

    def _objects(self) -> str:
        return text(
            *(workload(name, control=self.sockets, serve="http=8080", serviceAccount=name) for name in SERVERS),
            workload("caller", control=self.sockets, serviceAccount="caller"),
            *(http_service(name) for name in SERVERS),
            service("bank", {"name": "http", "port": 80, "targetPort": 8080}),
            peer_authentication("strict", "STRICT"),
            peer_authentication("permissive", "PERMISSIVE"),
            security("Telemetry", "log", {"accessLogging": [{"providers": [{"name": "envoy"}]}]}, "istio-system"),
        )

    def write(self, name: str, content: str) -> None:
        (self.home / name).write_text(content)
        (self.home / name).rename(self.directory / name)

    def status(self) -> MeshStatus | None:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return fetch_status(self.name)
        except LocalError:
            return None

    def ready(self) -> bool:
        status = self.status()
        pods = status.pods if status else ()
        return len(pods) == len(SERVERS) + 1 and {pod.phase for pod in pods} == {PodPhase.READY}

    def pod(self, name: str) -> PodStatus:
        return next(pod for pod in fetch_status(self.name).pods if pod.workload == name)

    def address(self, name: str) -> str:
        return self.pod(name).addresses[0]

    def tell(self, name: str, command: str, **arguments: Any) -> Any:
        return asyncio.run(tell(self.sockets, f"{name}-0", command, **arguments))

    def lines(self, name: str) -> list[str]:
        return list(read_logs(self.name, f"shop/{name}-0", proxy=True))

    def call(self, client: str, name: str, path: str, shown: Credentials, **options) -> tuple[Outcome, str]:
        """Send a request over TLS from outside; returns the outcome and the line in the access log of the pod's
        proxy."""
        return self._with_line(name, lambda: self.outside.call(client, self.address(name), path, shown, **options))

    def plaintext(self, name: str, path: str) -> tuple[Outcome, str]:
        return self._with_line(name, lambda: self.outside.plaintext(self.address(name), path))

    def _with_line(self, name: str, act: Callable[[], Outcome]) -> tuple[Outcome, str]:
        earlier = set(self.lines(name))
        outcome = act()

        def new() -> list[str]:
            return [line for line in self.lines(name) if line not in earlier and f" {outcome.address}" in line]

        (line,) = eventually_blocking(new)
        return outcome, line

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        subprocess.run([*WEFT, "down", self.name], capture_output=True, timeout=60, check=False)
        shutil.rmtree(self.sockets, ignore_errors=True)


SERVERS = ("strict", "permissive", "impostor")


@pytest.fixture(scope="module")
def mesh(run_base) -> Iterator[Running]:
    os.environ.setdefault("PYTHONPATH", os.pathsep.join(sys.path))
    home = Path(tempfile.mkdtemp(prefix="weft-hands-", dir="/tmp"))
    home.chmod(0o755)
    running = Running(home)
    try:
        eventually_blocking(running.ready, limit=60)
        yield running
    finally:
        running.close()
        shutil.rmtree(home, ignore_errors=True)


_numbers = itertools.count()


@pytest.fixture
def path() -> str:
    """A unique path, to find out whether the application received the request."""
    return f"/secret-{next(_numbers)}"


# The presented credentials, and what the log must contain.
REFUSED: dict[str, tuple[Callable[[TrustCenter], Credentials], str]] = {
    "no certificate": (lambda trust: Credentials(), "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
    "an expired one": (lambda trust: trust.of(FRIEND, begins=-3600, ends=-60), "certificate_has_expired"),
    "one of tomorrow": (lambda trust: trust.of(FRIEND, begins=3600, ends=7200), "certificate_is_not_yet_valid"),
    "one of another trust domain": (
        lambda trust: trust.of("spiffe://other.example/ns/elsewhere/sa/friend"),
        "SAN_matcher",
    ),
    "one of a domain that begins alike": (
        lambda trust: trust.of("spiffe://cluster.local.example/ns/elsewhere/sa/friend"),
        "SAN_matcher",
    ),
    "one that is a server's": (lambda trust: trust.of_a_server(), "unsupported_certificate_purpose"),
    "a self-signed one": (lambda trust: trust.self_signed(FRIEND), "unable_to_get_local_issuer"),
    "one of a foreign CA": (lambda trust: trust.foreign(FRIEND), "self_signed_certificate_in_certificate_chain"),
    "one that our root seems to have signed": (lambda trust: trust.forged(FRIEND), "certificate_signature_failure"),
}


@pytest.mark.parametrize("client", TLS_CLIENTS)
@pytest.mark.parametrize("name", ["strict", "permissive"])
@pytest.mark.parametrize("what", REFUSED)
def test_refuses_a_caller_with(what, name, client, mesh, path):
    make, reason = REFUSED[what]
    outcome, line = mesh.call(client, name, path, make(mesh.trust))
    assert outcome.answer == "", outcome
    assert outcome.error, outcome
    assert reason in line, line
    assert path not in mesh.tell(name, "received")


@pytest.mark.parametrize("client", TLS_CLIENTS)
@pytest.mark.parametrize("name", ["strict", "permissive"])
def test_refuses_a_caller_with_a_stolen_certificate_and_not_its_key(name, client, mesh, path):
    leaf = mesh.outside.leaf(mesh.address("caller"), mesh.friend)
    stolen = mesh.trust.stolen((leaf, mesh.trust.certificate))
    outcome, line = mesh.call(client, name, path, stolen)
    assert outcome.answer == "", outcome
    assert "BAD_SIGNATURE" in line, line
    assert path not in mesh.tell(name, "received")


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("client", TLS_CLIENTS)
@pytest.mark.parametrize("name", ["strict", "permissive"])
def test_admits_a_caller_of_the_mesh_and_logs_its_identity(name, client, version, mesh, path):
    outcome, line = mesh.call(client, name, path, mesh.friend, version=version)
    assert outcome.status == 200, outcome
    assert f'"GET {path} HTTP/1.1" 200' in line
    assert f'downstream_peer="{FRIEND}"' in line
    assert 'downstream_transport_failure_reason="-"' in line
    assert mesh.tell(name, "received")[path] == 1


def test_refuses_an_old_tls(mesh, path):
    outcome, line = mesh.call("ssl", "strict", path, mesh.friend, version="TLSv1_1")
    assert outcome.answer == ""
    assert "UNSUPPORTED_PROTOCOL" in line


def test_strict_refuses_plaintext(mesh, path):
    outcome, line = mesh.plaintext("strict", path)
    assert outcome.answer == ""
    assert "reset" in outcome.error
    assert " NR filter_chain_not_found " in line
    assert path not in mesh.tell("strict", "received")


def test_permissive_accepts_plaintext_without_a_peer_identity(mesh, path):
    outcome, line = mesh.plaintext("permissive", path)
    assert outcome.status == 200
    assert f'"GET {path} HTTP/1.1" 200' in line
    assert 'downstream_peer="-"' in line
    assert mesh.tell("permissive", "received")[path] == 1


def bank(address: str, account: str) -> str:
    """Here the bank is not a pod but an address; the ServiceEntry declares its account."""
    spec = {"address": address, "labels": {"app": "bank"}, "serviceAccount": account}
    return text(istio("WorkloadEntry", "bank", spec))


def test_a_proxy_refuses_a_server_that_is_another_member_of_the_mesh(mesh, path):
    """Secure naming: a valid certificate of this mesh, but not of the service's account."""
    mesh.write("bank.yaml", bank(mesh.address("impostor"), "bank"))

    def ask() -> int:
        return mesh.tell("caller", "http", url=f"http://bank{path}")[0]["status"]

    def refusal() -> str:
        assert ask() == 503
        return next((each for each in mesh.lines("caller") if path in each and "SAN_matcher" in each), "")

    said = eventually_blocking(refusal)
    assert " 503 URX,UF " in said  # it is retried, and rejected again
    assert "CERTIFICATE_VERIFY_FAILED" in said
    assert "[spiffe://cluster.local/ns/shop/sa/impostor]" in said
    assert path not in mesh.tell("impostor", "received")
    # The same server is accepted under its own name.
    mesh.write("bank.yaml", bank(mesh.address("impostor"), "impostor"))
    eventually_blocking(lambda: ask() == 200)
    assert mesh.tell("impostor", "received")[path] >= 1


def test_a_policy_holds_on_connections_that_were_open_before_it(mesh):
    """A caller admitted earlier is still connected. It gets one more response by the old rules, then its connection
    is closed."""

    def ask() -> int:
        return mesh.tell("caller", "http", url="http://strict/")[0]["status"]

    def in_force() -> bool:
        stats = fetch_admin(mesh.name, "shop/strict-0", "/stats", {"filter": "total_filter_chains_draining"})
        return int(stats.split()[-1]) > 0

    eventually_blocking(lambda: not in_force())  # after the changes of another test
    assert ask() == 200
    rule = {"from": [{"source": {"serviceAccounts": ["caller"]}}]}
    spec = {"selector": {"matchLabels": {"app": "strict"}}, "action": "DENY", "rules": [rule]}
    mesh.write("deny.yaml", text(security("AuthorizationPolicy", "no-callers", spec)))
    try:
        eventually_blocking(in_force)
        assert [ask(), ask(), ask()][1:] == [403, 403]
    finally:
        (mesh.directory / "deny.yaml").unlink()
    eventually_blocking(lambda: ask() == 200)


def test_a_workload_shows_one_name_for_a_short_time_and_a_chain_up_to_the_root(mesh):
    status = mesh.pod("strict").identity
    before = time.time()
    leaf = mesh.outside.leaf(mesh.address("strict"), mesh.friend)  # verified against the root by Python's TLS
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.UniformResourceIdentifier("spiffe://cluster.local/ns/shop/sa/strict")]
    assert list(leaf.subject) == []
    assert f"{leaf.serial_number:x}" == status.serial
    begins, ends = leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp()
    assert before < ends <= before + TTL + 1
    assert ends - begins <= TTL + SKEW + 1
    assert isinstance(leaf.public_key().curve, ec.SECP256R1)
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    if "openssl" in TLS_CLIENTS:
        chain = mesh.outside.certificates(mesh.address("strict"), mesh.friend)
        assert chain == (leaf, mesh.trust.certificate)  # never the root, which the other side must have already
        assert verifies(map(certificate_pem, chain), [certificate_pem(mesh.trust.root)])


class Places:
    """Every place where the mesh could have put a key, other than its memory: (name, bytes) of each."""

    def __init__(self, mesh: Running, run_base: Path) -> None:
        self.mesh, self.run_base = mesh, run_base
        namespaces = [each for each in namespace.namespaces() if each.name.startswith(namespace_prefix(mesh.name))]
        self.pids = [mesh.process.pid, *(pid for each in namespaces for pid in processes_in(each))]

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        mesh = self.mesh
        yield from files_below(self.run_base, mesh.directory, mesh.log, mesh.trust.directory, mesh.sockets)
        yield from started_with(self.pids)
        for pod in fetch_status(mesh.name).pods:
            for page in ("config_dump?include_eds", "certs", "clusters", "listeners", "stats", "init_dump"):
                path, _, query = page.partition("?")
                queries = {query: ""} if query else {}
                yield f"{pod.name}/{page}", fetch_admin(mesh.name, f"shop/{pod.name}", f"/{path}", queries)
        yield from self._mapped()
        yield from self._open()

    def _mapped(self) -> Iterator[tuple[str, bytes]]:
        """Each file mapped into a process's memory, once; also deleted ones."""
        seen = set()
        for pid in self.pids:
            for link in Path(f"/proc/{pid}/map_files").iterdir():
                with contextlib.suppress(OSError):
                    found = link.stat()
                    if stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) not in seen:
                        seen.add((found.st_dev, found.st_ino))
                        yield f"mapped by {pid}: {link.readlink()}", link.read_bytes()

    def _open(self) -> Iterator[tuple[str, bytes]]:
        for pid in self.pids:
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if stat.S_ISREG(link.stat().st_mode):
                        yield f"open in {pid}: {link.readlink()}", link.read_bytes()


def memory_of(pid: int) -> Iterator[bytes]:
    """The memory of a process that is not mapped from a file."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            bounds, rights, _, _, inode, *name = line.split(maxsplit=5)
            if rights.startswith("rw") and inode == "0" and name[:1] not in (["[vvar]"], ["[vsyscall]"]):
                begin, end = (int(bound, 16) for bound in bounds.split("-"))
                with contextlib.suppress(OSError):
                    memory.seek(begin)
                    yield memory.read(end - begin)


def keys_in(memory: bytes) -> Iterator[ec.EllipticCurvePrivateKey]:
    for found in re.finditer(rb"-----BEGIN PRIVATE KEY-----\n[\w+/=\n]{100,400}-----END PRIVATE KEY-----\n", memory):
        with contextlib.suppress(ValueError):
            yield serialization.load_pem_private_key(found[0], None)


@pytest.fixture(scope="module")
def searched(mesh, run_base):
    return search(Places(mesh, run_base))


def test_no_private_key_is_in_any_file_dump_or_process_of_the_mesh(mesh, searched):
    own = mesh.trust.directory / "ca-key.pem"  # plugged in by the user, readable by root alone
    assert {place.partition(": ")[0] for place in searched.found} == {str(own)}, searched.found
    assert own.stat().st_mode & 0o077 == 0
    assert searched.places > 100


def test_the_search_finds_a_private_key_if_there_is_one(mesh, run_base, searched):
    key = ec.generate_private_key(ec.SECP256R1())
    planted = run_base / mesh.name / "pods" / "planted"
    for encoding, kind in ((Encoding.PEM, "PEM"), (Encoding.DER, "P-256 in DER")):
        planted.write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, NoEncryption()))
        found = search(Places(mesh, run_base)).found
        assert f"{planted}: {kind}" in found
    planted.unlink()


def test_the_keys_in_use_are_in_the_agents_memory_and_in_no_other_place(mesh, run_base):
    """Only root can read there. The test searches for the actual keys, so no encoding can hide them."""
    keys = {key.private_numbers().private_value: key for part in memory_of(mesh.process.pid) for key in keys_in(part)}
    shown = mesh.outside.leaf(mesh.address("strict"), mesh.friend).public_key()
    assert shown in [key.public_key() for key in keys.values()]
    secrets = [value.to_bytes(32, "big") for value in keys]
    written = [form for secret in secrets for form in (secret, secret[::-1], secret.hex().encode())]
    for place, data in Places(mesh, run_base):
        assert not [form for form in written if form in data], place


def test_a_pods_user_cannot_read_the_agents_memory_or_the_secrets_of_its_own_proxy(mesh):
    mine = mesh.pod("caller")
    assert Path(f"/proc/{mesh.process.pid}/mem").stat().st_uid == 0
    reach = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    sockets = [*(Path(os.environ["WEFT_RUN_DIR"]) / mesh.name / "sds").glob("*/sds.sock")]
    assert len(sockets) == len(SERVERS) + 1
    for path in sockets:
        command = [*WEFT, "exec", "--mesh", mesh.name, mine.name, "--", sys.executable, "-c", reach, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode != 0
        assert "PermissionError" in done.stderr or "FileNotFoundError" in done.stderr, done.stderr
