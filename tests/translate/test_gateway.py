"""HTTP from outside through a real gateway: the hosts it serves, the routes it uses, the client headers it trusts."""

import pytest
from tools.ports import free_port

from eventually import eventually
from fields import proves
from gateway_rig import application, ask, entry, gateway, underscores
from translate.authorizers import http_authorizer
from translate.tokens import ISSUER, OTHER_KEY, RSA_KEY, key_set, token
from weft.api.document import Change
from weft.model.names import ObjectKey

HTTP = """
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: public, namespace: edge}}
spec:
  selector: {{istio: ingress}}
  servers:
    - port: {{number: {port}, name: http, protocol: HTTP}}
      hosts: ["shop.example.com", "shop/*.example.org"]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: shop, namespace: shop, creationTimestamp: "2026-01-01T00:00:00Z"}}
spec:
  hosts: [shop.example.com, a.example.org]
  gateways: [edge/public]
  http:
    - match: [{{uri: {{prefix: /cart}}}}]
      route: [{{destination: {{host: cart}}}}]
    - route: [{{destination: {{host: web}}}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: pay, namespace: shop, creationTimestamp: "2026-01-02T00:00:00Z"}}
spec:
  hosts: [shop.example.com]
  gateways: [mesh, edge/public]
  http:
    - match: [{{uri: {{prefix: /pay}}, gateways: [edge/public]}}]
      route: [{{destination: {{host: cart}}}}]
    - match: [{{uri: {{prefix: /mesh}}, gateways: [mesh]}}]
      route: [{{destination: {{host: cart}}}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: foreign, namespace: elsewhere}}
spec:
  hosts: [b.example.org]
  gateways: [edge/public]
  http: [{{directResponse: {{status: 299}}}}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: others, namespace: edge}}
spec:
  selector: {{istio: egress}}
  servers:
    - port: {{number: {port}, name: http, protocol: HTTP}}
      hosts: ["other.example.com"]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: others, namespace: edge}}
spec:
  hosts: [other.example.com]
  gateways: [others]
  http: [{{directResponse: {{status: 295}}}}]
"""


@pytest.fixture
async def shop():
    port = free_port()
    async with application("web") as web, application("cart") as cart:
        text = HTTP.format(port=port) + entry("web", web) + entry("cart", cart)
        async with gateway(text, listening=(port,)) as made:
            made.port = port
            yield made


@proves(
    "Gateway",
    "spec.selector",
    "spec.servers[].port.number",
    "spec.servers[].port.protocol",
    "spec.servers[].hosts",
)
async def test_the_selected_gateway_serves_its_http_port_by_host_and_path_and_answers_others_with_404(shop):
    for host, path, app in (
        ("shop.example.com", "/", "web"),
        ("shop.example.com", "/cart/1", "cart"),
        ("shop.example.com:80", "/", "web"),
        ("a.example.org", "/", "web"),
    ):
        found = await ask(shop.port, host, path)
        assert (found.status, found.seen["app"]) == (200, app), (host, path)
    assert (await ask(shop.port, "other.example.com")).status == 404  # another gateway's
    assert (await ask(shop.port, "web.shop.svc.cluster.local")).status == 404


@proves("VirtualService", "spec.gateways", "spec.http[].match[].gateways")
async def test_a_gateway_merges_all_routes_bound_to_it_and_ignores_those_for_the_mesh(shop):
    assert (await ask(shop.port, "shop.example.com", "/pay")).seen["app"] == "cart"  # before what catches everything
    assert (await ask(shop.port, "shop.example.com", "/mesh")).seen["app"] == "web"


async def test_routes_for_any_host_apply_to_the_servers_hosts_and_not_below_its_wildcards(shop):
    shop.apply(
        """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: any, namespace: shop, creationTimestamp: "2026-01-03T00:00:00Z"}
spec:
  hosts: ["*"]
  gateways: [edge/public]
  http:
    - match: [{uri: {prefix: /any}}]
      directResponse: {status: 297}
    - directResponse: {status: 296}
"""
    )
    await shop.until_has("*.example.org:")
    assert (await ask(shop.port, "shop.example.com", "/any")).status == 297
    assert (await ask(shop.port, "shop.example.com", "/")).seen["app"] == "web"  # the oldest that catches everything
    assert (await ask(shop.port, "a.example.org", "/any")).seen["app"] == "web"  # a name that is the other's own
    assert (await ask(shop.port, "b.example.org", "/any")).status == 297


async def test_routes_of_a_namespace_that_the_server_does_not_allow_are_ignored(shop):
    assert (await ask(shop.port, "b.example.org")).status == 404
    shop.apply(
        """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: own, namespace: shop}
spec:
  hosts: [b.example.org]
  gateways: [edge/public]
  http: [{directResponse: {status: 298}}]
"""
    )
    await shop.until_has("b.example.org:")
    assert (await ask(shop.port, "b.example.org")).status == 298


async def test_a_route_adds_its_destinations_cluster_and_removing_it_removes_the_cluster(shop):
    async with application("late") as late:
        shop.apply(entry("late", late).strip("-\n"))
        assert "late.shop" not in await shop.dump()
        routing = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: late, namespace: shop}
spec:
  hosts: [late.example.org]
  gateways: [edge/public]
  http: [{route: [{destination: {host: HOST}}]}]
"""
        shop.apply(routing.replace("HOST", "late"))
        await shop.until_has("outbound|80||late.shop", "late.example.org:")
        assert (await ask(shop.port, "late.example.org")).seen["app"] == "late"
        shop.apply(routing.replace("HOST", "web"))
        await shop.until_lacks("outbound|80||late.shop")
        assert (await ask(shop.port, "late.example.org")).seen["app"] == "web"


async def test_headers_of_outside_clients_about_themselves_are_not_trusted(shop):
    said = (
        ("x-forwarded-client-cert", "By=spiffe://cluster.local/ns/shop/sa/admin"),
        ("x-envoy-upstream-rq-timeout-ms", "1"),
        ("x-forwarded-for", "10.9.9.9"),
    )
    found = await ask(shop.port, "shop.example.com", headers=said)
    assert found.header("x-forwarded-client-cert") is None
    assert found.header("x-forwarded-for").startswith("10.9.9.9,")  # the real client address is last
    assert (await ask(shop.port, "shop.example.com", "/x/../cart")).seen["line"] == "GET /cart HTTP/1.1"


INTERNAL = (
    "x-envoy-retry-on",
    "x-envoy-max-retries",
    "x-envoy-upstream-rq-timeout-ms",
    "x-envoy-upstream-rq-per-try-timeout-ms",
    "x-envoy-upstream-alt-stat-name",
    "x-envoy-expected-rq-timeout-ms",
    "x-envoy-decorator-operation",
    "x-envoy-original-path",
    "x-envoy-original-host",
    "x-envoy-original-url",
    "x-envoy-downstream-service-cluster",
    "x-envoy-downstream-service-node",
    "x-envoy-force-trace",
    "x-envoy-internal",
    "x-envoy-ip-tags",
)


async def test_headers_between_proxies_are_removed_from_requests_of_outside_clients(shop):
    """Also behind trusted proxies, which may set the client's address but no header that controls how a request is
    handled."""
    for trusted in (0, 1):
        shop.apply(_believing(trusted))
        await shop.until_has(*(['"xff_num_trusted_hops": 1'] if trusted else []))
        said = tuple((name, "1") for name in INTERNAL)
        found = await ask(shop.port, "shop.example.com", headers=(*said, ("x-forwarded-for", "10.0.0.1")))
        assert {name: found.header(name) for name in INTERNAL} == dict.fromkeys(INTERNAL)


async def test_headers_with_underscores_are_accepted_as_in_istio_unless_configured(shop):
    async def asked():
        return await ask(shop.port, "shop.example.com", headers=(("x_user", "admin"),))

    assert (await asked()).header("x_user") == "admin"
    for word, action in (("drop", "DROP_HEADER"), ("reject", "REJECT_REQUEST")):
        shop.apply(underscores(word).strip("-\n"))
        await shop.until_has(action)
        if word == "drop":
            assert (await asked()).header("x_user") is None
        else:
            assert (await asked()).status == 400


@proves("Gateway", "spec.servers[].tls.httpsRedirect")
async def test_plain_http_is_redirected_to_https(shop):
    shop.apply(
        HTTP.format(port=shop.port)
        .split("---")[0]
        .replace("protocol: HTTP}", "protocol: HTTP}\n      tls: {httpsRedirect: true}")
    )
    await shop.until_has("require_tls")
    for host in ("shop.example.com", "unrouted.example.org"):
        found = await ask(shop.port, host, "/cart?a=1")
        assert (found.status, found.headers["location"]) == (301, f"https://{host}/cart?a=1")


async def test_policies_apply_to_outside_clients(shop):
    shop.apply(
        """
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: none, namespace: edge}
spec:
  selector: {matchLabels: {istio: ingress}}
  action: DENY
  rules: [{to: [{operation: {paths: [/cart*]}}]}]
"""
    )
    await shop.until_has("policy[none]")
    assert (await ask(shop.port, "shop.example.com", "/cart")).status == 403
    assert (await ask(shop.port, "shop.example.com", "/")).status == 200


@pytest.mark.parametrize(
    "host", ["b.example.org", "B.Example.org.", "b.example.org:x", "b.example.org.:80", "x@b.example.org"]
)
async def test_no_spelling_of_a_host_bypasses_a_policy_that_denies_it(shop, host):
    shop.apply(
        """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: wide, namespace: shop}
spec:
  hosts: ["*.example.org"]
  gateways: [edge/public]
  http: [{route: [{destination: {host: web}}]}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: closed, namespace: edge}
spec:
  action: DENY
  rules: [{to: [{operation: {hosts: [b.example.org]}}]}]
"""
    )
    await shop.until_has("policy[closed]", "*.example.org:")
    assert (await ask(shop.port, "c.example.org")).status == 200
    assert (await ask(shop.port, host)).status == 403


async def test_a_gateway_verifies_tokens_and_policies_use_them(shop):
    shop.apply(
        f"""
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {{name: tokens, namespace: edge}}
spec:
  selector: {{matchLabels: {{istio: ingress}}}}
  jwtRules: [{{issuer: "{ISSUER}", jwks: '{key_set(rsa=RSA_KEY)}'}}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {{name: known, namespace: edge}}
spec:
  selector: {{matchLabels: {{istio: ingress}}}}
  rules:
    - from: [{{source: {{requestPrincipals: ["*"]}}}}]
      when: [{{key: "request.auth.claims[group]", values: [staff]}}]
"""
    )
    await shop.until_has("jwt_authn", "policy[known]")

    async def status(*sent):
        headers = [("authorization", f"Bearer {each}") for each in sent]
        return (await ask(shop.port, "shop.example.com", headers=headers)).status

    assert await status() == 403
    assert await status(token(RSA_KEY, group="staff")) == 200
    assert await status(token(RSA_KEY, group="guest")) == 403
    assert await status(token(OTHER_KEY, group="staff")) == 401


async def test_a_gateway_calls_the_authorizer_with_the_clients_request(shop):
    async with http_authorizer() as (port, asked):
        shop.apply(
            entry("checker", port).strip("-\n")
            + """
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  mesh: |
    extensionProviders:
      - name: checker
        envoyExtAuthzHttp:
          service: checker.shop.svc.cluster.local
          port: 80
          includeRequestHeadersInCheck: [x-user]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: asked, namespace: edge}
spec:
  selector: {matchLabels: {istio: ingress}}
  action: CUSTOM
  provider: {name: checker}
  rules: [{to: [{operation: {paths: [/cart*]}}]}]
"""
        )
        await shop.until_has("ext_authz", "outbound|80||checker.shop")

        async def status(user, path):
            return (await ask(shop.port, "shop.example.com", path, headers=(("x-user", user),))).status

        assert await status("good", "/cart") == 200
        assert await status("bad", "//cart") == 401
        assert len(asked) == 2
        assert await status("bad", "/") == 200


@proves("Gateway", "spec.servers[].bind")
async def test_a_server_with_bind_listens_only_on_that_address(shop):
    port = free_port()
    shop.apply(
        f"""
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: inner, namespace: shop}}
spec:
  selector: {{istio: ingress}}
  servers:
    - name: inner
      bind: 127.0.0.1
      port: {{number: {port}, name: http, protocol: HTTP}}
      hosts: ["*"]
"""
    )
    await shop.until_listening(port)
    assert f'"127.0.0.1_{port}"' in await shop.dump()
    assert (await ask(port, "anything")).status == 404


async def test_a_deleted_gateway_closes_its_port(shop):
    shop.plane.apply([Change(ObjectKey("Gateway", "edge", "public"), None)])

    async def is_gone():
        return await ask(shop.port, "shop.example.com") is None

    await eventually(is_gone)


def _believing(number):
    return f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: istio, namespace: istio-system}}
data:
  mesh: |
    defaultConfig: {{gatewayTopology: {{numTrustedProxies: {number}}}}}
"""


async def test_a_gateway_trusts_the_configured_number_of_proxies_in_front(shop):
    shop.apply(
        """
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: one, namespace: edge}
spec:
  rules: [{from: [{source: {remoteIpBlocks: [198.51.100.7]}}]}]
"""
    )
    await shop.until_has("policy[one]")
    said = (("x-forwarded-for", "203.0.113.9, 198.51.100.7"),)
    assert (await ask(shop.port, "shop.example.com", headers=said)).status == 403
    shop.apply(_believing(1))
    await shop.until_has('"xff_num_trusted_hops": 1')
    assert (await ask(shop.port, "shop.example.com", headers=said)).status == 200
    lie = (("x-forwarded-for", "198.51.100.7, 203.0.113.9"),)
    assert (await ask(shop.port, "shop.example.com", headers=lie)).status == 403
