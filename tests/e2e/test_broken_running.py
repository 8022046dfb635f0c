"""Faults of a running mesh, tests/broken/running: each fault is made for real, the commands that an operator types
first show it, and then it is repaired."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tools.troubleshooting import MESHES, broken

from e2e import commands
from e2e.commands import missing, weft
from e2e.mesh import proxy_process, running_mesh, unique_name
from e2e.objects import http_service, text
from e2e.test_config_changes import with_text
from eventually import eventually
from weft.ca.error import AuthorityError
from weft.local.client import fetch_status
from weft.local.identities import Trust
from weft.model.names import ObjectKey

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module")]

RUNNING = broken("running")
TTL = timedelta(seconds=8)
KILLED = unique_name("killed")


def files(control):
    refused = next(each.text for each in RUNNING if each.name == "refused-by-envoy")
    return {"base.yaml": (MESHES / "base.yaml").read_text(), "refused-by-envoy.yaml": refused}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole_mesh():
    async with running_mesh(files, trust=Trust(certificate_ttl=TTL)) as mesh:
        yield mesh


@contextlib.asynccontextmanager
async def standing_still(mesh):
    pid, _ = proxy_process(mesh.pod("client"))
    os.kill(pid, signal.SIGSTOP)
    try:
        mesh.write("test.yaml", text(http_service("new")))
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.asynccontextmanager
async def dying(mesh):
    """Killed whenever it is back, so each back-off is longer."""

    async def kill():
        while True:
            with contextlib.suppress(StopIteration, ProcessLookupError):
                os.kill(proxy_process(mesh.pod("web-v1"))[0], signal.SIGKILL)
            await asyncio.sleep(0.2)

    killing = asyncio.create_task(kill())
    try:
        yield
    finally:
        killing.cancel()


@contextlib.asynccontextmanager
async def refusing(mesh):
    key = ObjectKey("VirtualService", "shop", "refused")
    good = mesh.control.mesh.get(key)
    # RE2 has no lookahead, so this passes every check that does not use RE2 itself.
    mesh.control.put(key, with_text(good, "/keyword.*", "/(?=keyword).*"))
    try:
        yield
    finally:
        mesh.control.put(key, good)


@contextlib.asynccontextmanager
async def unsigned(mesh):
    authority = mesh.engine.vouch().authority
    sign = authority.sign

    def refuse(*_):
        raise AuthorityError("the signer is away")

    authority.sign = refuse
    try:
        # Open connections continue, so no call is made before all certificates have expired.
        await eventually(lambda: not any(pod.identity.is_held(time.time()) for pod in proxied(mesh)))
        yield
    finally:
        authority.sign = sign


def proxied(mesh):
    return [pod for each in mesh.engine.status().workloads for pod in each.pods if pod.identity is not None]


@contextlib.asynccontextmanager
async def killed(mesh):
    directory = mesh.sockets / "small"
    directory.mkdir()
    (directory / "mesh.yaml").write_text(
        "apiVersion: weft.dev/v1alpha1\nkind: Workload\nmetadata: {name: client}\nspec: {command: [sleep, infinity]}\n"
    )
    await weft(f"weft up {directory} --name {KILLED} --detach", directory)
    os.kill(fetch_status(KILLED).pid, signal.SIGKILL)
    try:
        yield
    finally:
        await weft(f"weft down {KILLED}", directory)


@contextlib.asynccontextmanager
async def of_another(mesh):
    directory = mesh.directory / "ca"
    directory.mkdir(mode=0o700)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]
    signer, other = certificate("one", keys[0]), certificate("two", keys[1])
    ca = certificate("ca", keys[2], issuer=signer, key_of_issuer=keys[0])
    for name, content in (("ca-cert.pem", ca), ("cert-chain.pem", ca), ("root-cert.pem", other)):
        (directory / name).write_bytes(content.public_bytes(serialization.Encoding.PEM))
    private = keys[2].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / "ca-key.pem").touch(mode=0o600)
    (directory / "ca-key.pem").write_bytes(private)
    yield


def certificate(name, key, *, issuer=None, key_of_issuer=None):
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer.subject if issuer else subject)
    made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=30))
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return made.sign(key_of_issuer or key, hashes.SHA256())


@contextlib.asynccontextmanager
async def turned(mesh):
    case = next(each for each in RUNNING if each.name == "change-that-turned-it")
    await mesh.edit({f"{case.name}.yaml": case.text})
    yield
    await mesh.edit({f"{case.name}.yaml": None})


BREAKS = {
    "certificate-that-expired": unsigned,
    "change-that-turned-it": turned,
    "control-plane-that-was-killed": killed,
    "proxy-that-dies": dying,
    "proxy-that-stands-still": standing_still,
    "refused-by-envoy": refusing,
    "root-of-another": of_another,
}


@pytest.mark.parametrize("case", RUNNING, ids=lambda case: case.name)
async def test_the_first_commands_of_an_operator_show_what_broke_while_the_mesh_runs(case, mesh):
    await mesh.ready()
    async with BREAKS[case.name](mesh):
        for caller, url, end in (line.split() for line in case.gets):

            async def has_come(caller=caller, url=url, end=end):
                return (await commands.ends(caller, [url], mesh.directory))[url] == end

            await eventually(has_come, limit=40)
        for _ in range(20):  # a new fault takes a moment to be detected
            wrong = await lacking(case, mesh)
            if not wrong:
                break
    assert not wrong, wrong


async def lacking(case, mesh):
    answers = {}
    for typed in case.typed:
        command = typed.command.replace("KILLED", KILLED)
        chosen = (
            "" if "KILLED" in typed.command or typed.command.startswith(OF_NO_MESH) else f" --mesh {mesh.engine.name}"
        )
        said = await weft(command + chosen, mesh.directory)
        answers[typed.command] = said.replace(KILLED, "KILLED")
    return missing(case, answers)


OF_NO_MESH = ("weft ps", "weft ca show", "weft up")
