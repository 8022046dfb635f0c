"""The edge of a mesh on this machine: TLS from outside with a Secret, egress through a gateway, policies on both."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import tarfile
from datetime import timedelta

import pytest
from tools.ports import free_port

from authority import Authority, Credentials
from e2e.commands import weft
from e2e.objects import Document, http_service, istio, service, text, workload
from eventually import eventually
from gateway_rig import ask, trusting
from translate import tokens

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOST, OUTER, VIRTUAL = "shop.example.com", "api.example.com", "192.0.2.77"
HTTPS, HTTP = free_port(), free_port()
AUTHORITY = Authority()
SHOWN = AUTHORITY.issue(HOST)


def gateway_pod(name: str, *published: Document) -> Document:
    return {
        "apiVersion": "weft.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}},
        "spec": {"gateway": {"publish": list(published)}, "serviceAccount": name},
    }


def server(number: int, protocol: str, host: str, **tls: object) -> Document:
    port = {"number": number, "name": f"{protocol}-{number}".lower(), "protocol": protocol}
    return {"port": port, "hosts": [host], **({"tls": tls} if tls else {})}


def secret(shown: object = SHOWN) -> Document:
    held = {"tls.crt": shown.certificate, "tls.key": shown.key}  # type: ignore[attr-defined]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "shop", "namespace": "shop"},
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(content).decode() for name, content in held.items()},
    }


def security(kind: str, name: str, spec: Document) -> Document:
    return istio(kind, name, spec) | {"apiVersion": "security.istio.io/v1"}


def files(control):
    servers = [
        server(443, "HTTPS", HOST, mode="SIMPLE", credentialName="shop"),
        server(80, "HTTP", HOST, httpsRedirect=True),
    ]
    to_app = {"hosts": [HOST], "gateways": ["edge"], "http": [{"route": [{"destination": {"host": "app"}}]}]}
    published = ({"port": 443, "hostPort": HTTPS}, {"port": 80, "hostPort": HTTP})
    return {
        "app.yaml": text(
            workload("app", control=control, serve="http=8080", serviceAccount="app"),
            http_service("app"),
            workload("outer", control=control, serve="http=8080", annotations={"sidecar.istio.io/inject": "false"}),
            workload("caller", control=control, serviceAccount="caller"),
            workload("stranger", control=control, serviceAccount="stranger"),
        ),
        "edge.yaml": text(
            gateway_pod("edge", *published),
            istio("Gateway", "edge", {"selector": {"app": "edge"}, "servers": servers}),
            istio("VirtualService", "edge", to_app),
        ),
        "secret.yaml": text(secret()),
        "egress.yaml": text(
            gateway_pod("egress"), service("egress", {"name": "https", "port": 443, "targetPort": 8443})
        ),
    }


async def answers(status: int | None, shown: object = SHOWN, path: str = "/") -> bool:
    with contextlib.suppress(TimeoutError, OSError):
        found = await ask(HTTPS, HOST, path, tls=trusting(shown))
        return (found.status if found else None) == status
    return False


async def test_tls_from_outside_ends_at_the_gateway_and_goes_on_by_the_meshs(mesh):
    await eventually(lambda: answers(200))
    only = {"from": [{"source": {"principals": ["cluster.local/ns/shop/sa/edge"]}}]}
    await mesh.try_out(
        security("AuthorizationPolicy", "app", {"selector": {"matchLabels": {"app": "app"}}, "rules": [only]})
    )
    assert await answers(200)
    assert (await mesh.get("caller", "http://app/"))["status"] == 403
    found = await ask(HTTP, HOST, "/a")
    assert found is not None
    assert (found.status, found.headers["location"]) == (301, f"https://{HOST}/a")


async def test_a_renewed_secret_is_served_and_an_invalid_one_is_reported_and_not_used(mesh):
    await eventually(lambda: answers(200))
    fresh = Authority().issue(HOST)
    mesh.write("secret.yaml", text(secret(fresh)))
    await eventually(lambda: answers(200, fresh))
    bad = secret(fresh)
    bad["data"]["tls.key"] = base64.b64encode(SHOWN.key).decode()
    mesh.write("secret.yaml", text(bad))
    said = await eventually(lambda: next((each for each in mesh.problems() if "Secret shop/shop" in each), None))
    assert "`tls.key` is not the key of the first certificate" in said
    assert await answers(200, fresh)
    mesh.write("secret.yaml", None)
    await eventually(lambda: answers(None, fresh))
    await eventually(lambda: any("WFT0704" in each for each in mesh.problems()))
    mesh.write("secret.yaml", text(secret()))
    await eventually(lambda: answers(200))


async def test_the_audit_reports_a_server_certificate_that_expires_soon(mesh):
    late = Authority().issue(HOST, lifetime=timedelta(minutes=5))
    mesh.write("secret.yaml", text(secret(late)))
    await eventually(lambda: answers(200, late))
    told = await weft(f"weft audit --mesh {mesh.engine.name}", mesh.directory)
    (line,) = [each for each in told.splitlines() if "its certificate" in each]
    assert f"Proxy edge-0.shop: its certificate for {HOST} expires at " in line and "should have been renewed" in line
    shown = await weft(f"weft proxy-config secret edge-0.shop --why --mesh {mesh.engine.name}", mesh.directory)
    (row,) = [each for each in shown.splitlines() if each.startswith("kubernetes://shop ")]
    assert "Secret shop/shop" in row and f"{mesh.directory}/secret.yaml" in row
    ends = next(word for word in row.split() if re.fullmatch(r"\d+-\d+-\d+T[\d:]+Z", word))
    assert ends.replace("T", " ").replace("Z", " UTC") in line
    mesh.write("secret.yaml", text(secret()))
    await eventually(lambda: answers(200))


async def test_no_command_shows_the_key_of_a_gateway_not_even_one_kept_beside_its_certificate(mesh, tmp_path):
    careless = Authority().issue(HOST)
    both = Credentials(careless.certificate + careless.key, careless.key, careless.root)
    mesh.write("secret.yaml", text(secret(both)))
    await eventually(lambda: answers(200, careless))
    report, change = tmp_path / "report.tar.gz", tmp_path / "change.yaml"
    change.write_text(text(secret(Authority().issue(HOST))))  # its key has the same first bytes
    told = [await weft(f"weft bug-report -o {report} --mesh {mesh.engine.name}", mesh.directory)]
    with tarfile.open(report) as archive:
        held = {each.name: archive.extractfile(each).read() for each in archive}
    assert not [name for name in held if name.endswith("left-out.txt")]  # nothing had to be left out
    for command in (
        *("pc secret edge -o json", "pc all edge -o json", "pc all edge", "pc bootstrap edge"),
        *("why edge secret kubernetes://shop", "history", "history -o json", "describe pod edge -o json", "audit"),
        *(
            "proxy-status edge -o json",
            "diff @-1",
            "diff @-1 -o json",
            f"diff -f {change}",
            f"diff -f {change} -o json",
        ),
        *(f"analyze -f {change}", f"explain edge --to https://{HOST}/ -o json", "ca show"),
    ):
        told.append(await weft(f"weft {command} --mesh {mesh.engine.name}", mesh.directory))
        assert "Traceback" not in told[-1] and "Usage" not in told[-1], told[-1]
    pages = ("configz", "history", "adsz", "syncz", "registryz", "endpointz", "version")
    told += [(await mesh.engine.debug.answer(page)).body.decode() for page in pages]
    told += mesh.engine.find_pod("edge").log.proxy.tail()
    told.append((await mesh.engine.find_pod("edge").proxy.admin.read("/config_dump", {})).decode())  # as curl gets it
    for secrecy in written(careless.key):
        assert not [each[:200] for each in told if secrecy in each]
        assert not [name for name, data in held.items() if secrecy.encode() in data]
    mesh.write("secret.yaml", text(secret()))
    await eventually(lambda: answers(200))


def written(key: bytes) -> list[str]:
    """A key in every form in which it could appear: as PEM, also in JSON, and all of that in base64 at every offset."""
    line = key.splitlines()[1].decode()
    encoded = [base64.b64encode(b"x" * offset + key)[8:100].decode() for offset in range(3)]
    return [line, *encoded]


async def test_a_policy_on_the_gateway_denies_the_paths_it_names(mesh):
    await eventually(lambda: answers(200))
    deny = {
        "selector": {"matchLabels": {"app": "edge"}},
        "action": "DENY",
        "rules": [{"to": [{"operation": {"paths": ["/admin*"]}}]}],
    }
    await mesh.try_out(security("AuthorizationPolicy", "edge", deny))
    assert await answers(403, path="/admin/x")
    assert await answers(200)


async def test_routes_by_claims_of_a_verified_token_are_chosen_and_explained(mesh):
    await eventually(lambda: answers(200))

    def says(word, **match):
        return (
            {"match": [match], "directResponse": {"status": 200, "body": {"string": word}}}
            if match
            else {"directResponse": {"status": 200, "body": {"string": word}}}
        )

    claims = "@request.auth.claims"
    routing = {
        "hosts": [OUTER],
        "gateways": ["claims"],
        "http": [
            says("admin", headers={f"{claims}.groups": {"exact": "Admins"}}),
            says("nested", headers={f"{claims}[realm][roles]": {"prefix": "ro"}}),
            says("no scope", withoutHeaders={f"{claims}.scope": {"regex": ".*"}}, headers={f"{claims}.sub": {}}),
            says("rest"),
        ],
    }
    rules = [{"issuer": tokens.ISSUER, "jwks": tokens.key_set(rsa=tokens.RSA_KEY)}]
    open_server = server(80, "HTTP", OUTER)
    await mesh.try_out(
        istio("Gateway", "claims", {"selector": {"app": "edge"}, "servers": [open_server]}),
        istio("VirtualService", "claims", routing),
        security("RequestAuthentication", "edge", {"selector": {"matchLabels": {"app": "edge"}}, "jwtRules": rules}),
    )
    cases = {
        "admin": {"groups": ["Users", "Admins"]},
        "nested": {"groups": "admins", "realm": {"roles": ["root"]}},
        "no scope": {},
        "rest": {"scope": "read"},
    }

    async def said(token=""):
        found = await ask(HTTP, OUTER, headers=[("authorization", f"Bearer {token}")] if token else [])
        return found.body.decode() if found is not None else None

    await eventually(said, lambda word: word == "rest")
    for word, held in cases.items():
        token = tokens.token(**held)
        assert await said(token) == word
        told = await weft(
            f"weft explain edge --to http://{OUTER}/ --jwt {token} --mesh {mesh.engine.name}", mesh.directory
        )
        assert ("with the claims of the token" in told) == (word != "rest"), told
        assert {"admin": "claims groups", "nested": "claims realm.roles", "no scope": "claims"}.get(
            word, "prefix /"
        ) in told
    forged = await ask(HTTP, OUTER, headers=[("authorization", f"Bearer {tokens.token(tokens.OTHER_KEY)}")])
    assert forged is not None and forged.status == 401


async def test_a_change_is_judged_by_what_came_in_from_outside(mesh, tmp_path):
    await eventually(lambda: answers(200))
    logged = istio("Telemetry", "logged", {"accessLogging": [{"providers": [{"name": "envoy"}]}]})
    await mesh.try_out(logged | {"apiVersion": "telemetry.istio.io/v1"})
    assert await answers(200, path="/admin/17?token=s3cr3t") and await answers(200, path="/else")
    deny = {"action": "DENY", "rules": [{"to": [{"operation": {"paths": ["/admin*"]}}]}]}
    change = tmp_path / "deny.yaml"
    change.write_text(
        text(security("AuthorizationPolicy", "edge", {"selector": {"matchLabels": {"app": "edge"}}} | deny))
    )

    async def judged():
        told = await weft(f"weft diff -f {change} --mesh {mesh.engine.name}", mesh.directory)
        return told if "2 recent requests compared" in told else None

    told = await eventually(judged)
    assert "2 recent requests compared, 1 with another result" in told and "s3cr3t" not in told
    assert f"1× edge.shop GET https://{HOST}:{HTTPS}/admin/* (200)\n  - delivered" in told
    assert "  + denied 403" in told


async def test_the_way_from_outside_is_explained(mesh):
    await eventually(lambda: answers(200))
    told = await weft(f"weft explain edge --to https://{HOST}/ --mesh {mesh.engine.name}", mesh.directory)
    assert "the server terminates TLS with kubernetes://shop" in told
    assert "delivered: the call reaches app-0.shop" in told
    told = await weft(f"weft why edge secret kubernetes://shop --mesh {mesh.engine.name}", mesh.directory)
    assert "Secret shop/shop" in told and "out-of-secret" in told


def egress(address: str) -> tuple[Document, ...]:
    to_gateway = {"destination": {"host": "egress", "subset": "api", "port": {"number": 443}}}
    return (
        istio(
            "ServiceEntry",
            "api",
            {
                "hosts": [OUTER],
                "addresses": [VIRTUAL],
                "ports": [{"number": 80, "name": "http", "protocol": "HTTP", "targetPort": 8080}],
                "resolution": "STATIC",
                "endpoints": [{"address": address}],
            },
        ),
        istio(
            "Gateway",
            "egress",
            {"selector": {"app": "egress"}, "servers": [server(443, "HTTPS", OUTER, mode="ISTIO_MUTUAL")]},
        ),
        istio(
            "VirtualService",
            "api",
            {
                "hosts": [OUTER],
                "gateways": ["mesh", "egress"],
                "http": [
                    {"match": [{"gateways": ["mesh"]}], "route": [to_gateway]},
                    {"match": [{"gateways": ["egress"]}], "route": [{"destination": {"host": OUTER}}]},
                ],
            },
        ),
        istio(
            "DestinationRule",
            "egress",
            {
                "host": "egress",
                "subsets": [{"name": "api", "trafficPolicy": {"tls": {"mode": "ISTIO_MUTUAL", "sni": OUTER}}}],
            },
        ),
        security(
            "AuthorizationPolicy",
            "egress",
            {
                "selector": {"matchLabels": {"app": "egress"}},
                "rules": [{"from": [{"source": {"principals": ["cluster.local/ns/shop/sa/caller"]}}]}],
            },
        ),
    )


async def test_egress_goes_through_the_gateway_which_authorizes_by_caller_identity(mesh):
    await mesh.try_out(*egress(mesh.pod("outer").addresses[0]))
    found = await eventually(lambda: _called(mesh, "caller", 200))
    assert found
    assert await _called(mesh, "stranger", 403)
    told = await weft(f"weft explain caller --to http://{OUTER}/ --mesh {mesh.engine.name}", mesh.directory)
    assert "outbound|443|api|egress.shop.svc.cluster.local" in told


async def _called(mesh, who, status):
    with contextlib.suppress(asyncio.TimeoutError):
        return (await mesh.get(who, f"http://{OUTER}/"))["status"] == status
    return False


def sealed(who: str, mode: str) -> tuple[Document, ...]:
    """A route to `app` through a passthrough gateway: `who` is the identity that the caller's proxy expects, `mode`
    how the gateway calls."""
    to_gateway = {"destination": {"host": "egress", "port": {"number": 443}}}
    onward = {"match": [{"gateways": ["egress"], "sniHosts": [OUTER]}], "route": [{"destination": {"host": "app"}}]}
    expected = [f"spiffe://cluster.local/ns/shop/sa/{who}"]
    rule = {"mode": "ISTIO_MUTUAL", "sni": OUTER, "subjectAltNames": expected}
    return (
        istio(
            "ServiceEntry",
            "api",
            {
                "hosts": [OUTER],
                "addresses": [VIRTUAL],
                "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
                "resolution": "STATIC",
                "endpoints": [{"address": VIRTUAL}],
            },
        ),
        istio(
            "Gateway",
            "egress",
            {"selector": {"app": "egress"}, "servers": [server(443, "TLS", OUTER, mode="PASSTHROUGH")]},
        ),
        istio(
            "VirtualService",
            "api",
            {
                "hosts": [OUTER],
                "gateways": ["mesh", "egress"],
                "http": [{"match": [{"gateways": ["mesh"]}], "route": [to_gateway]}],
                "tls": [onward],
            },
        ),
        istio("DestinationRule", "egress", {"host": "egress", "trafficPolicy": {"tls": rule}}),
        istio(
            "DestinationRule",
            "app",
            {
                "host": "app",
                "trafficPolicy": {"tls": {"mode": mode}},
                "workloadSelector": {"matchLabels": {"app": "egress"}},
            },
        ),
    )


@pytest.mark.parametrize(
    ("who", "mode", "status", "told"),
    [
        ("app", "DISABLE", 200, "delivered: the call reaches app-0.shop"),
        ("other", "DISABLE", 503, "the server is spiffe://cluster.local/ns/shop/sa/app, not"),
        ("app", "ISTIO_MUTUAL", 503, "app-0.shop expects HTTP, but the connection carries something else"),
    ],
)
async def test_tls_of_the_mesh_that_a_gateway_passes_on_is_explained_to_its_end(mesh, who, mode, status, told):
    await mesh.try_out(*sealed(who, mode))
    await eventually(lambda: _called(mesh, "caller", status))
    said = await weft(f"weft explain caller --to http://{OUTER}/ --mesh {mesh.engine.name}", mesh.directory)
    assert "the server forwards the TLS of the caller's proxy unchanged" in said
    assert told in said
