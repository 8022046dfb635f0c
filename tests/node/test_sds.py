"""Real Envoys that get their certificate over a real socket, and other processes that try to get it."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import ssl
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from eventually import eventually
from identity_rig import identities, identity
from node.tls_envoy import connect, pod_network, tls_envoy, until_served
from weft.envoy.binary import EnvoyError
from weft.model.proxy import PROXY_GID, PROXY_UID
from weft.node.key import KeyKind
from weft.node.sds import Secret, certificate_secret, roots_secret

pytestmark = pytest.mark.root


@pytest.fixture
def open_directory(tmp_path):
    """A directory that other users can enter, because a pod's Envoy runs as another user."""
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.fixture
def network():
    with pod_network() as made:
        yield made


async def test_envoy_gets_its_certificate_and_its_roots_and_checks_callers_by_them(open_directory, network):
    async with identities(open_directory) as rig:
        sds = await rig.add(network=network, account="web")
        async with tls_envoy(open_directory / "envoy", sds, network):
            connection = await until_served(network, rig.tls())
            assert await connection.get() == 200
            names = connection.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            assert names.get_values_for_type(x509.UniformResourceIdentifier) == [str(identity("web"))]
            assert connection.serial == rig.status().serial
            await connection.close()
            nobody = ssl.create_default_context(cadata="".join(rig.authority.bundle()))
            nobody.check_hostname = False
            with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
                stranger = await connect(network, nobody)
                await stranger.get()


@pytest.mark.parametrize("kind", [KeyKind.P384, KeyKind.RSA2048, KeyKind.ED25519])
async def test_other_kinds_of_keys_are_served_where_configured(open_directory, network, kind):
    async with identities(open_directory) as rig:
        sds = await rig.add(network=network, key=kind)
        async with tls_envoy(open_directory / "envoy", sds, network):
            connection = await until_served(network, rig.tls())
            assert await connection.get() == 200
            await connection.close()


async def test_an_envoy_without_a_certificate_takes_no_connection_and_does_once_it_is_signed(open_directory, network):
    async with identities(open_directory) as rig:
        rig.line.cut = True
        sds = await rig.add(network=network)
        async with tls_envoy(open_directory / "envoy", sds, network) as (admin, _, _):
            await rig.until(lambda: rig.line.asked >= 2)
            # Envoy has the roots, and waits only for the certificate.
            await eventually(
                lambda: admin.stats("sds-grpc"),
                lambda stats: stats.values.get("cluster.sds-grpc.upstream_rq_total", 0) >= 2,
                retry=EnvoyError,  # while Envoy starts
            )
            with pytest.raises(OSError):
                await connect(network, rig.tls())
            rig.line.cut = False
            connection = await until_served(network, rig.tls())
            assert await connection.get() == 200
            await connection.close()


async def test_renewals_come_on_the_open_stream_and_no_connection_is_lost(open_directory, network):
    async with identities(open_directory, lifetime=timedelta(seconds=3)) as rig:
        sds = await rig.add(network=network)
        async with tls_envoy(open_directory / "envoy", sds, network) as (admin, _, _):
            first = await until_served(network, rig.tls())
            serials = {first.serial}
            async with asyncio.timeout(30):
                while len(serials) < 4:
                    fresh = await connect(network, rig.tls())
                    assert await fresh.get() == 200
                    serials.add(fresh.serial)
                    await fresh.close()
                    assert await first.get() == 200  # on a connection whose certificate expired long ago
            stats = (await admin.stats(r"sds-grpc\.upstream_(rq|cx)_total")).values
            assert stats["cluster.sds-grpc.upstream_rq_total"] == 2  # one stream for each secret
            assert stats["cluster.sds-grpc.upstream_cx_total"] == 1
            await first.close()


async def test_new_roots_come_on_the_open_stream_and_the_certificate_follows(open_directory, network):
    async with identities(open_directory) as rig:
        sds = await rig.add(network=network)
        async with tls_envoy(open_directory / "envoy", sds, network):
            first = await until_served(network, rig.tls())
            before = rig.status()
            old = rig.tls()
            rig.authority.rotate(timedelta(hours=1))
            rig.authority.switch()
            # Otherwise the renewal would be due within a minute.
            await rig.until(lambda: len(rig.status().roots) == 2 and rig.status().renewal < before.renewal)
            kept, _ = rig.agent._kept["shop/web-0"]
            kept._renewal = 0.0
            kept._woken.set()
            await rig.until(lambda: rig.status().serial != before.serial)
            fresh = rig.tls()  # signed by the new root
            async with asyncio.timeout(30):
                while (connection := await connect(network, fresh)).serial == before.serial:
                    await connection.close()
            assert await connection.get() == 200
            assert await first.get() == 200
            await connection.close()
            with pytest.raises(ssl.SSLError):  # a client that trusts only the old root rejects the new certificate
                await connect(network, old)
            await first.close()


async def test_an_expiry_while_the_ca_is_down_is_an_error_and_ends_when_the_ca_is_back(open_directory, network, caplog):
    async with identities(open_directory, lifetime=timedelta(seconds=2)) as rig:
        sds = await rig.add(network=network)
        async with tls_envoy(open_directory / "envoy", sds, network):
            await (await until_served(network, rig.tls())).close()
            rig.line.cut = True
            await rig.until(lambda: "its certificate expired at" in rig.status().trouble(rig.authority._clock()))
            trouble = rig.agent.lack("shop/web-0")
            assert "no identity: its certificate expired at" in trouble and "the line is cut" in trouble
            with pytest.raises(ssl.SSLError):  # Envoy still has the expired certificate, which clients reject
                await connect(network, rig.tls())
            rig.line.cut = False
            connection = await until_served(network, rig.tls())
            assert await connection.get() == 200
            assert rig.agent.lack("shop/web-0") == ""
            await connection.close()
    loud = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [re.sub(r"expired at .* UTC", "", each.getMessage()) for each in loud]
    assert len(loud) == 1 and "renewal has failed since" in loud[0].getMessage()


ASK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as door:
    door.connect(sys.argv[1])
    door.settimeout(5)
    door.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\\0\\0\\0\\4\\0\\0\\0\\0\\0")
    print(len(door.recv(100)))
"""


def ask(sds: Path, *, uid: int, where=None) -> str:
    enter = ["nsenter", f"--net={where.path}"] if where else []
    become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
    done = subprocess.run(
        [*enter, *become, "/usr/bin/env", "python3", "-c", ASK, str(sds)], capture_output=True, text=True, timeout=20
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


async def test_only_the_proxys_user_in_the_pods_own_network_can_open_the_socket(open_directory, network, caplog):
    for parent in (open_directory, *open_directory.parents):  # so that only the modes below are tested
        if not parent.stat().st_mode & 1:
            parent.chmod(parent.stat().st_mode | 0o011)
    async with identities(open_directory) as rig:
        sds = await rig.add(network=network)
        found = sds.stat()
        assert (found.st_mode & 0o777, found.st_uid, found.st_gid) == (0o660, 0, PROXY_GID)
        assert sds.parent.stat().st_mode & 0o777 == 0o750
        assert (open_directory / "private").stat().st_mode & 0o777 == 0o700

        async def asked(**arguments) -> str:
            return await asyncio.to_thread(ask, sds, **arguments)

        assert int(await asked(uid=PROXY_UID, where=network)) > 0
        assert "PermissionError" in await asked(uid=10_000, where=network)
        refused = (
            "0",
            "ConnectionResetError: [Errno 104] Connection reset by peer",
            "BrokenPipeError: [Errno 32] Broken pipe",
        )
        assert await asked(uid=0, where=network) in refused
        assert await asked(uid=PROXY_UID) in refused
        with pod_network() as other:
            assert await asked(uid=PROXY_UID, where=other) in refused
        said = [record.getMessage() for record in caplog.records if "rejected process" in record.getMessage()]
        assert len(said) == 3 and "only user 1337" in said[0] and "not in the network namespace" in said[2]


async def test_the_key_is_in_no_file_no_dump_and_no_log(open_directory, network, caplog):
    caplog.set_level("DEBUG")
    async with identities(open_directory, lifetime=timedelta(seconds=3)) as rig:
        sds = await rig.add(network=network)
        async with tls_envoy(open_directory / "envoy", sds, network, log_level="debug") as (admin, process, log):
            await (await until_served(network, rig.tls())).close()
            first = rig.status().serial
            kept, _ = rig.agent._kept["shop/web-0"]
            keys = [kept._certified.key]
            await rig.until(lambda: rig.status().serial != first)
            keys.append(kept._certified.key)
            dump = await admin.read("/config_dump", {"include_eds": ""})
            assert base64.b64encode(b"[redacted]") in dump  # in place of the key
            certificates = await admin.read("/certs", {})
            said = [dump, certificates, log.read_bytes(), "\n".join(map(logged, caplog.records)).encode()]
            seen = [path for path in open_directory.rglob("*") if path.is_file()]
            for pid in (process.pid, os.getpid()):
                mapped = Path(f"/proc/{pid}/maps").read_text().splitlines()
                names = {line.split(None, 5)[5] for line in mapped if len(line.split(None, 5)) == 6}
                seen += [Path(name) for name in names if name.startswith(("/tmp", "/dev/shm", "/run", "/memfd"))]
            said += [path.read_bytes() for path in seen if path.is_file()]
            for key in keys:
                pem = key.secret_pem()
                lines = [*pem.split(b"\n")[1:-2], base64.b64encode(pem)[40:200]]
                assert not [text[:200] for text in said for line in lines if line in text]
            limits = Path(f"/proc/{process.pid}/limits").read_text()
            assert re.search(r"Max core file size +1 +1 ", limits)


def logged(record) -> str:
    return f"{record.getMessage()} {record.args!r} {record.exc_text}"


async def test_a_removed_workload_has_no_socket_and_its_envoy_keeps_its_secrets(open_directory, network):
    async with identities(open_directory) as rig:
        sds = await rig.add(network=network)
        async with tls_envoy(open_directory / "envoy", sds, network):
            await (await until_served(network, rig.tls())).close()
            await rig.agent.remove("shop/web-0")
            assert not sds.exists() and not sds.parent.exists() and not list((open_directory / "private").iterdir())
            connection = await connect(network, rig.tls())
            assert await connection.get() == 200
            await connection.close()


async def test_each_workload_gets_its_own_whatever_it_calls_itself(open_directory, network):
    with pod_network() as other:
        async with identities(open_directory) as rig:
            mine = await rig.add("web-0", network=network, account="web")
            theirs = await rig.add("api-0", network=other, account="api")
            async with (
                tls_envoy(open_directory / "web", mine, network),
                tls_envoy(open_directory / "api", theirs, other),  # its node metadata claims to be web-0
            ):
                for where, pod in ((network, "web-0"), (other, "api-0")):
                    connection = await until_served(where, rig.tls())
                    assert connection.serial == rig.status(pod).serial
                    await connection.close()


def test_a_secret_prints_without_its_content():
    secret = certificate_secret(["-----BEGIN CERTIFICATE-----\n"], b"very secret")
    assert "very secret" not in f"{secret!r} {secret} {[secret]}"
    assert b"very secret" in secret.body
    assert isinstance(roots_secret(["a"]), Secret) and roots_secret(["a"]).version != roots_secret(["b"]).version
