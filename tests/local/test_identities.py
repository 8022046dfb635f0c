"""The identities of the pods of a real mesh, when pods are removed, certificates renewed and roots rotated."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from ca import making
from eventually import eventually
from local.rig import CALLER, SERVICE, mesh, pods, settings, web
from weft.ca.admin import SOCKET, Wish, ask
from weft.ca.authority import Authority
from weft.ca.error import AuthorityError
from weft.ca.signer import SigningRefused
from weft.local.client import fetch_ca, rotate_ca
from weft.local.error import LocalError
from weft.local.identities import Trust
from weft.local.run_directory import base_directory

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("run_base")]


async def test_every_pod_with_a_proxy_has_its_identity_before_it_is_ready_and_none_without():
    bare = CALLER.replace("name: caller,", "name: bare,").replace(
        "labels:", "annotations: {sidecar.istio.io/inject: 'false'}, labels:"
    )
    async with mesh(SERVICE, web(extra="serviceAccount: web"), bare) as rig:
        found = {pod.name: pod.identity for pod in pods(await rig.until_ready("bare-0", "web-0"))}
        assert found["bare-0"] is None
        assert found["web-0"].identity == "spiffe://cluster.local/ns/shop/sa/web"
        assert found["web-0"].serial and found["web-0"].not_after - found["web-0"].not_before > 86_000
        assert len(found["web-0"].roots) == 1


async def test_a_pod_that_is_gone_has_no_socket_and_its_tokens_are_worthless():
    async with mesh(SERVICE, web()) as rig:
        await rig.until_ready("web-0")
        identities, plan = rig.engine._identities, rig.pod("web-0").plan
        socket = identities.socket(plan)
        assert socket.is_socket() and (socket.stat().st_mode & 0o777) == 0o660
        token = await identities._agent._kept[plan.key][0].bearer.token()
        rig.write("1.yaml", web(replicas=0))
        await rig.until(lambda status: not pods(status))
        assert not socket.exists() and identities.status(plan) is None
        with pytest.raises(SigningRefused, match="the pod that the token is bound to does not exist any more"):
            await identities._agent._signer.create(token, b"", timedelta(hours=1))
        rig.write("1.yaml", web())
        await rig.until_ready("web-0")
        assert rig.pod("web-0").plan.pod_uid != plan.pod_uid


async def test_without_an_identity_a_pod_is_not_ready_with_a_reason_and_recovers_by_itself(monkeypatch):
    async with mesh(SERVICE) as rig:
        identities = rig.engine._identities
        sign = identities.authority.sign

        def refuse(*arguments):
            raise AuthorityError("the CA's certificate expired")

        monkeypatch.setattr(identities.authority, "sign", refuse)
        rig.write("web.yaml", web())
        why = "proxy: no identity: no certificate since"
        status = await rig.until(lambda status: pods(status) and why in pods(status)[0].message)
        assert pods(status)[0].phase == "Starting"
        (problem,) = status.problems
        assert "identity: no certificate since" in problem.what and problem.where.file.endswith("web.yaml")
        monkeypatch.setattr(identities.authority, "sign", sign)
        await rig.until_ready("web-0")
        await rig.until(lambda status: not status.problems)


ONE_EACH = """
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec:
  host: web
  trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}
"""


async def test_certificates_of_seconds_and_a_new_root_cost_no_request_though_each_one_is_a_handshake():
    async with mesh(SERVICE, web(), CALLER, ONE_EACH, trust=Trust(certificate_ttl=timedelta(seconds=4))) as rig:
        await rig.until_ready("caller-0", "web-0")
        identities, address, answers = rig.engine._identities, rig.address(), []
        before = identities.authority.bundle()[0]
        while rig.pod("web").status({}).identity.renewals < 3 or identities.authority.bundle()[0] == before:
            answers.append(await rig.fetch("caller", address))
            if len(answers) == 20:
                rig.engine.rotate_ca(timedelta(seconds=0.5))
        assert {status for status, _ in answers} == {200}
        stats = await rig.pod("web").proxy.admin.stats(r"15006\.ssl\.(handshake|connection_error|fail)")
        assert stats.values.get("listener.0.0.0.0_15006.ssl.handshake", 0) >= len(answers)
        assert not [name for name, count in stats.values.items() if count and "handshake" not in name]
        assert not rig.engine.problems()


async def test_the_root_is_rotated_over_the_meshs_own_socket():
    async with mesh(SERVICE, web(), trust=Trust(certificate_ttl=timedelta(seconds=4))) as rig:
        await rig.until_ready("web-0")
        name = rig.engine.name
        first = (await asyncio.to_thread(fetch_ca, name)).certificates[0].fingerprint
        status = await asyncio.to_thread(rotate_ca, name, timedelta(seconds=0.2))
        assert status.phase == "announced" and status.certificates[0].fingerprint == first
        with pytest.raises(LocalError, match="a rotation is in progress"):
            await asyncio.to_thread(rotate_ca, name)

        def signed_by_new(_) -> bool:
            roots = rig.pod("web").status({}).identity.roots
            return len(roots) == 2 and roots[1] == first

        await rig.until(signed_by_new)
        before = rig.pod("web").status({}).identity.serial
        await rig.until(lambda _: rig.pod("web").status({}).identity.serial != before)


async def test_a_ca_in_a_directory_is_the_same_for_the_next_mesh(tmp_path):
    roots = []
    for _ in range(2):
        async with mesh(SERVICE, trust=Trust(ca=tmp_path / "ca")) as rig:
            roots.append(rig.engine.ca_status().certificates[0].fingerprint)
            # `weft ca rotate DIR` uses this socket.
            await eventually(lambda: (tmp_path / "ca" / SOCKET).exists())
            (status,) = await asyncio.to_thread(lambda: list(ask(tmp_path / "ca", Wish(do="status"))))
            assert status.certificates[0].fingerprint == roots[0]
        assert not (tmp_path / "ca" / SOCKET).exists()
    assert roots[0] == roots[1]
    async with mesh(SERVICE) as rig:
        assert rig.engine.ca_status().certificates[0].fingerprint != roots[0]


async def test_an_invalid_ca_keeps_the_mesh_from_starting_with_a_reason(tmp_path):
    (tmp_path / "ca-cert.pem").write_text("not a certificate")
    with pytest.raises(LocalError) as refused:
        async with mesh(SERVICE, trust=Trust(ca=tmp_path)):
            pass
    assert str(tmp_path) in str(refused.value)


async def test_a_root_for_another_trust_domain_keeps_the_mesh_from_starting_without_a_traceback(tmp_path, caplog):
    Authority.open(tmp_path / "ca", "cluster.local").close()
    with pytest.raises(LocalError) as refused:
        async with mesh(settings("trustDomain: shop.example"), SERVICE, web(), trust=Trust(ca=tmp_path / "ca")):
            pass
    assert "is for the trust domain 'cluster.local', not 'shop.example'" in refused.value.problem.what
    assert "authority.json" in str(refused.value.problem.where)
    assert not [record for record in caplog.records if record.exc_info]


async def test_files_of_a_ca_that_turn_bad_and_what_signs_and_ends_soon_are_problems_of_the_mesh(tmp_path):
    root_key, key = making.p256(), making.p256()
    root = making.ca("root", root_key)
    soon = making.ca("soon", key, by=root, by_key=root_key, ends=0.1)
    making.plug_in(tmp_path, certificate=soon, key=key, roots=[root])
    async with mesh(SERVICE, trust=Trust(ca=tmp_path)) as rig:
        await rig.until(lambda status: any("signer 'CN=soon' expires at" in each.what for each in status.problems))
        (tmp_path / "ca-cert.pem").write_text("noise")
        bad = "the old ones stay in use"
        await rig.until(lambda status: any(bad in str(each) and "ca-cert.pem" in each.what for each in status.problems))
        later = making.ca("later", key, by=root, by_key=root_key)
        making.plug_in(tmp_path, certificate=later, key=key, roots=[root])
        await rig.until(lambda status: not any(str(each.where) == "CA" for each in status.problems))


async def test_no_file_of_a_mesh_holds_a_private_key():
    async with mesh(SERVICE, web(), CALLER) as rig:
        await rig.until_ready("caller-0", "web-0")
        files = [path for path in (base_directory() / rig.engine.name).rglob("*") if path.is_file()]
        assert any(path.name == "envoy.json" for path in files)
        proxies = [pod.proxy.pid for pod in rig.engine.pods()]
        for pid in proxies:
            maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
            names = {line.split(None, 5)[5] for line in maps if len(line.split(None, 5)) == 6}
            files += [Path(name) for name in names if name.startswith(("/tmp", "/dev/shm", "/run"))]
        kept = [kept for kept, _ in rig.engine._identities._agent._kept.values()]
        secrets = [line for each in kept for line in each._certified.key.secret_pem().split(b"\n")[1:-2]]
        assert len(secrets) >= 4
        for path in files:
            if path.is_file():
                text = path.read_bytes()
                assert not any(secret in text for secret in secrets), path
