"""Authorization in a whole mesh: identities come from real certificates, and policies change while it runs."""

from __future__ import annotations

import pytest

from e2e.objects import http_service, istio, service, text, workload
from eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROVIDERS = """
extensionProviders:
- name: checker
  envoyExtAuthzHttp: {service: checker.auth.svc.cluster.local, port: 80, pathPrefix: /check}
"""


def files(control):
    return {
        "callers.yaml": text(
            workload("client", control=control, serviceAccount="client"),
            workload("stranger", control=control, serviceAccount="stranger"),
            workload("outsider", control=control, annotations={"sidecar.istio.io/inject": "false"}),
        ),
        "app.yaml": text(
            workload("app", control=control, serve="http=8080 echo=9000 greeting=3306"),
            service(
                "app",
                {"name": "http", "port": 80, "targetPort": 8080},
                {"name": "tcp-echo", "port": 9000},
                {"name": "mysql", "port": 3306},
            ),
        ),
        "checker.yaml": text(
            workload("checker", control=control, serve="http=8080", namespace="auth"),
            http_service("checker", namespace="auth"),
        ),
        "mesh.yaml": text(
            istio("Sidecar", "default", {"egress": [{"hosts": ["./*"]}]}),
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "istio", "namespace": "istio-system"},
                "data": {"mesh": PROVIDERS},
            },
        ),
    }


def policy(name="p", **spec):
    document = istio("AuthorizationPolicy", name, {"selector": {"matchLabels": {"app": "app"}}, **spec})
    return document | {"apiVersion": "security.istio.io/v1"}


async def status(mesh, caller, path="/", **more):
    return (await mesh.get(caller, f"http://app{path}", keep_alive=False, **more))["status"]


async def becomes(mesh, expected, caller, path="/"):
    """Open connections follow the previous policies until the draining proxy has closed them."""

    async def check():
        return await status(mesh, caller, path) == expected

    await eventually(check)


async def echoes(mesh, caller):
    """Whether bytes come back on the TCP port."""
    try:
        answer = await mesh.tell(caller, "tcp", host="app", port=9000, send="x", half_close=True)
    except AssertionError:
        return False
    return answer["received"].startswith("x")


async def test_only_the_account_that_is_named_gets_in_over_http_and_tcp(mesh):
    assert await status(mesh, "stranger") == 200
    principal = "cluster.local/ns/shop/sa/client"
    await mesh.try_out(policy(rules=[{"from": [{"source": {"principals": [principal]}}]}]))
    await becomes(mesh, 403, "stranger")
    assert [await status(mesh, caller) for caller in ("client", "stranger", "outsider")] == [200, 403, 403]
    assert [await echoes(mesh, caller) for caller in ("client", "stranger", "outsider")] == [True, False, False]


async def test_a_denied_caller_does_not_receive_the_greeting_of_a_server_first_protocol(mesh):
    async def hears(caller):
        answer = await mesh.tell(caller, "tcp", host="app", port=3306, wait_first=True, read=0)
        return answer["first"] != ""

    assert await hears("stranger")
    strict = istio("PeerAuthentication", "strict", {"mtls": {"mode": "STRICT"}}) | {
        "apiVersion": "security.istio.io/v1"
    }
    await mesh.try_out(strict, policy(rules=[{"from": [{"source": {"serviceAccounts": ["client"]}}]}]))
    await becomes(mesh, 403, "stranger")
    assert [await hears(caller) for caller in ("client", "stranger", "outsider")] == [True, False, False]


async def test_a_denied_path_is_denied_to_callers_that_an_allow_policy_admits(mesh):
    await mesh.try_out(
        policy("allow", rules=[{"from": [{"source": {"serviceAccounts": ["client"]}}]}]),
        policy("deny", action="DENY", rules=[{"to": [{"operation": {"paths": ["/admin*"], "ports": ["8080"]}}]}]),
    )
    await becomes(mesh, 403, "client", "/admin")
    assert await status(mesh, "client", "/other") == 200
    assert await echoes(mesh, "client")


async def test_an_authorizer_beyond_the_sidecars_horizon_decides(mesh):
    await mesh.try_out(
        policy(
            action="CUSTOM",
            provider={"name": "checker"},
            rules=[{"to": [{"operation": {"paths": ["/ask/*"], "ports": ["8080"]}}]}],
        ),
    )
    await mesh.tell("checker", "script", path="/check/ask/no", forever={"status": 401})
    await becomes(mesh, 401, "client", "/ask/no")
    reached = await mesh.received("app", "/ask/no")
    assert await status(mesh, "client", "/ask/no") == 401
    assert await mesh.received("app", "/ask/no") == reached
    assert await status(mesh, "client", "/ask/yes") == 200
    assert await status(mesh, "client", "/free") == 200
    assert await mesh.received("checker", "/check/ask/yes") == 1
    assert await mesh.received("checker", "/check/free") == 0


async def test_a_policy_that_was_never_valid_denies_everything_until_it_is_fixed(mesh):
    await mesh.try_out(policy(rules=[{"form": []}]))
    await becomes(mesh, 403, "client")
    assert any("unknown field `form`" in problem for problem in mesh.problems())
    await mesh.try_out(policy(rules=[{}]))
    await becomes(mesh, 200, "client")
    assert not [problem for problem in mesh.problems() if ": error: " in problem]


async def test_a_dry_run_counts_what_it_would_have_denied(mesh):
    tried = policy(action="DENY", rules=[{"to": [{"operation": {"paths": ["/tried"]}}]}])
    tried["metadata"]["annotations"] = {"istio.io/dry-run": "true"}
    await mesh.try_out(tried)

    async def counted():
        assert await status(mesh, "client", "/tried") == 200
        return await mesh.stat("app", r"^http\.inbound.*rbac\.istio_dry_run_deny_\.shadow_denied$")

    await eventually(counted)
