"""Tasks of https://istio.io/latest/docs/tasks/security/: authentication, authorization, TLS. `becomes` waits where a
page does, between applying a policy and trying it."""

from __future__ import annotations

import json

import pytest

from e2e.objects import http_service, service, text, workload
from eventually import eventually
from tasks.bookinfo import objects
from translate import tokens

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.root]

KEYS = tokens.key_set(rsa=tokens.RSA_KEY)
PROVIDERS = {
    "extensionProviders": [
        {
            "name": "sample-ext-authz-http",
            "envoyExtAuthzHttp": {
                "service": "ext-authz.shop.svc.cluster.local",
                "port": 80,
                "includeRequestHeadersInCheck": ["x-ext-authz"],
            },
        }
    ],
    "trustDomainAliases": ["old-td"],
}


def files(control):
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "istio", "namespace": "istio-system"},
        "data": {"mesh": json.dumps(PROVIDERS)},
    }
    return {
        "callers.yaml": text(
            workload("curl", control=control, serviceAccount="curl"),
            workload("other", control=control, serviceAccount="other"),
            workload("legacy", control=control, annotations={"sidecar.istio.io/inject": "false"}),
        ),
        "httpbin.yaml": text(
            workload("httpbin", control=control, serve="http=8080 echo=9000 echo=9001"),
            service(
                "httpbin",
                {"name": "http", "port": 80, "targetPort": 8080},
                {"name": "tcp", "port": 9000},
                {"name": "tcp-other", "port": 9001},
            ),
        ),
        "ext-authz.yaml": text(workload("ext-authz", control=control, serve="http=8080"), http_service("ext-authz")),
        "settings.yaml": text(settings),
    }


async def status(mesh, who="curl", path="/headers", *, method="GET", token="", **headers):
    held = {"authorization": f"Bearer {token}"} if token else {}
    sent = {**held, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return (await mesh.get(who, f"http://httpbin{path}", method=method, headers=sent, keep_alive=False))["status"]


async def becomes(mesh, expected, who="curl", path="/headers", **arguments):
    await eventually(lambda: status(mesh, who, path, **arguments), lambda found: found == expected)


async def echoes(mesh, port, who="curl"):
    answer = await mesh.tell(who, "tcp", host="httpbin", port=port, send="x", half_close=True)
    return answer["received"].startswith("x")


def authentication(rule=""):
    return f"""
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {{name: jwt-example}}
spec:
  selector: {{matchLabels: {{app: httpbin}}}}
  jwtRules:
  - issuer: {tokens.ISSUER}
    jwks: '{KEYS}'
{rule}
"""


def authorization(spec, name="policy"):
    return f"""
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{app: httpbin}}}}
{spec}
"""


async def test_authn_policy(mesh):
    """Mutual TLS is automatic, then required: for the mesh, a workload, a port. Then tokens of end users."""
    seen = await mesh.get("curl", "http://httpbin/headers")
    assert "/sa/curl" in dict(seen["body"]["headers"])["x-forwarded-client-cert"]
    assert await status(mesh, "legacy") == 200
    strict = """
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: STRICT}}
"""
    await mesh.try_out(*objects(strict))
    await becomes(mesh, 0, "legacy")
    assert await status(mesh, "curl") == 200
    by_port = """
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: httpbin}
spec:
  selector: {matchLabels: {app: httpbin}}
  mtls: {mode: STRICT}
  portLevelMtls: {8080: {mode: DISABLE}}
"""
    await mesh.try_out(*objects(strict + "---" + by_port))
    await becomes(mesh, 200, "legacy")
    assert await status(mesh, "curl") == 200
    await mesh.try_out(*objects(authentication()))
    await becomes(mesh, 401, token="not.a.token")
    assert await status(mesh) == 200
    assert await status(mesh, token=tokens.token()) == 200
    assert await status(mesh, token=tokens.token(exp=1)) == 401
    required = authorization('  action: DENY\n  rules: [{from: [{source: {notRequestPrincipals: ["*"]}}]}]')
    await mesh.try_out(*objects(authentication() + "---" + required))
    await becomes(mesh, 403)
    assert await status(mesh, token=tokens.token()) == 200


async def test_claim_to_header(mesh):
    """A claim of a verified token is passed to the application as a header; a header of the caller is replaced."""
    rule = "    outputClaimToHeaders: [{header: x-jwt-claim-foo, claim: foo}]"
    await mesh.try_out(*objects(authentication(rule)))

    async def seen():
        headers = {"authorization": f"Bearer {tokens.token(foo='bar')}", "x-jwt-claim-foo": "forged"}
        answer = await mesh.get("curl", "http://httpbin/headers", headers=headers)
        return dict(answer["body"]["headers"]).get("x-jwt-claim-foo") if answer["status"] == 200 else None

    await eventually(seen, lambda found: found == "bar")


async def test_mtls_migration(mesh):
    """PERMISSIVE accepts both kinds of callers while they migrate; STRICT then locks out plaintext."""
    mode = """
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default}
spec: {mtls: {mode: MODE}}
"""
    await mesh.try_out(*objects(mode.replace("MODE", "PERMISSIVE")))
    assert [await status(mesh, who) for who in ("curl", "legacy")] == [200, 200]
    await mesh.try_out(*objects(mode.replace("MODE", "STRICT")))
    await becomes(mesh, 0, "legacy")
    assert await status(mesh, "curl") == 200


async def test_authz_http(mesh):
    """Nothing is allowed, then reading, then more for one account."""
    nothing = """
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: allow-nothing}
spec: {}
"""
    await mesh.try_out(*objects(nothing))
    await becomes(mesh, 403)
    reading = authorization("  action: ALLOW\n  rules: [{to: [{operation: {methods: [GET]}}]}]", "viewer")
    await mesh.try_out(*objects(nothing + "---" + reading))
    await becomes(mesh, 200)
    assert await status(mesh, method="POST") == 403
    by_account = authorization(
        "  action: ALLOW\n  rules:\n"
        '  - from: [{source: {principals: ["cluster.local/ns/shop/sa/curl"]}}]\n'
        "    to: [{operation: {methods: [GET, POST]}}]",
        "viewer",
    )
    await mesh.try_out(*objects(nothing + "---" + by_account))
    await becomes(mesh, 403, "other")
    await becomes(mesh, 200, method="POST")
    assert await status(mesh, "legacy") == 403


async def test_authz_tcp(mesh):
    """Ports of a TCP workload are allowed; a rule with an HTTP field never allows TCP."""
    allowed = authorization('  action: ALLOW\n  rules: [{to: [{operation: {ports: ["9000"]}}]}]')
    assert [await echoes(mesh, 9000), await echoes(mesh, 9001)] == [True, True]
    await mesh.try_out(*objects(allowed))
    await eventually(lambda: echoes(mesh, 9001), lambda found: not found)
    assert await echoes(mesh, 9000)
    with_method = authorization('  action: ALLOW\n  rules: [{to: [{operation: {methods: [GET], ports: ["9000"]}}]}]')
    await mesh.try_out(*objects(with_method))
    await eventually(lambda: echoes(mesh, 9000), lambda found: not found)
    denied = authorization('  action: DENY\n  rules: [{to: [{operation: {methods: [GET], ports: ["9000"]}}]}]')
    await mesh.try_out(*objects(denied))
    await eventually(lambda: echoes(mesh, 9001))
    assert not await echoes(mesh, 9000)


async def test_authz_jwt(mesh):
    """A token of an issuer, and then one of a group, is needed."""
    principal = f"{tokens.ISSUER}/alice"
    needed = authorization(f"  action: ALLOW\n  rules:\n  - from: [{{source: {{requestPrincipals: ['{principal}']}}}}]")
    await mesh.try_out(*objects(authentication() + "---" + needed))
    await becomes(mesh, 403)
    assert await status(mesh, token=tokens.token()) == 200
    grouped = needed.rstrip() + "\n    when: [{key: 'request.auth.claims[groups]', values: [group1]}]\n"
    await mesh.try_out(*objects(authentication() + "---" + grouped))
    await becomes(mesh, 403, token=tokens.token())
    assert await status(mesh, token=tokens.token(groups=["group1", "group2"])) == 200


async def test_authz_deny(mesh):
    """Denied requests stay denied, whatever is allowed."""
    deny = authorization("  action: DENY\n  rules: [{to: [{operation: {methods: [GET]}}]}]", "deny-get")
    await mesh.try_out(*objects(deny))
    await becomes(mesh, 403)
    assert await status(mesh, method="POST") == 200
    unless = authorization(
        "  action: DENY\n  rules:\n  - to: [{operation: {methods: [GET]}}]\n"
        "    when: [{key: 'request.headers[x-token]', notValues: [admin]}]",
        "deny-get",
    )
    await mesh.try_out(*objects(unless))
    await becomes(mesh, 200, x_token="admin")
    assert await status(mesh, x_token="guest") == 403
    allow = authorization("  action: ALLOW\n  rules: [{to: [{operation: {paths: [/ip]}}]}]", "allow-ip")
    await mesh.try_out(*objects(unless + "---" + allow))
    await becomes(mesh, 403, x_token="admin")
    assert [await status(mesh, path="/ip", x_token=who) for who in ("admin", "guest")] == [200, 403]


async def test_authz_custom(mesh):
    """An external service decides about some paths."""
    await mesh.tell("ext-authz", "script", path="/headers", forever={"status": 403})
    custom = authorization(
        "  action: CUSTOM\n  provider: {name: sample-ext-authz-http}\n"
        "  rules: [{to: [{operation: {paths: [/headers, /checked]}}]}]"
    )
    await mesh.try_out(*objects(custom))
    await becomes(mesh, 403)
    assert [await status(mesh, path="/checked"), await status(mesh, path="/ip")] == [200, 200]
    assert await mesh.received("ext-authz", "/ip") == 0


async def test_authz_dry_run(mesh):
    """A policy with the dry-run annotation denies nothing, and counts what it would deny."""
    (tried,) = objects(authorization("  action: DENY\n  rules: [{to: [{operation: {paths: [/headers]}}]}]"))
    tried["metadata"]["annotations"] = {"istio.io/dry-run": "true"}
    await mesh.try_out(tried)
    await becomes(mesh, 200)

    async def counted():
        assert await status(mesh) == 200
        return await mesh.stat("httpbin", r"^http\.inbound.*rbac.*shadow_denied$")

    await eventually(counted)


async def test_authz_td_migration(mesh):
    """A policy with an identity of the old trust domain holds for the new one, whose alias it is."""
    old = authorization('  action: ALLOW\n  rules: [{from: [{source: {principals: ["old-td/ns/shop/sa/curl"]}}]}]')
    await mesh.try_out(*objects(old))
    await becomes(mesh, 403, "other")
    assert await status(mesh, "curl") == 200
