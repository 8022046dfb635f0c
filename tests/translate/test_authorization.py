import asyncio
from pathlib import Path

import pytest
import yaml

from translate.policy_rig import HTTP_PORT, Request, rig
from translate.raw_http2 import ask_by_http2
from weft.model.authorization_policy import Action, AuthorizationPolicy, AuthorizationRule
from weft.model.group import ProxyKind
from weft.model.settings import PathNormalization, Settings
from weft.model.sidecar import OutboundPolicy
from weft.translate.authorization import http_filters, network_filters, rule_id
from weft.translate.view import GroupView

SETS = yaml.safe_load((Path(__file__).parent / "authorization_cases.yaml").read_text())
WORDS = {"disguised-path": "weft-disguised-path", "disguised-header": "weft-disguised-header", "none": "none"}


def test_the_table_is_large_enough():
    assert sum(len(entry["cases"]) for entry in SETS) >= 150


async def test_real_envoy_decides_as_the_table_states():
    cases = [(number, case) for number, entry in enumerate(SETS) for case in entry["cases"]]
    async with rig([documents(entry["policies"]) for entry in SETS]) as one:
        limit = asyncio.Semaphore(20)

        async def ask(index, number, case):
            async with limit:
                return await one.send(number, request(case), f"case-{index}")

        answers = await asyncio.gather(*(ask(index, *each) for index, each in enumerate(cases)))
        wrong = []
        for (number, case), answer in zip(cases, answers, strict=True):
            if answer.status != {"allow": 200, "deny": 403}[case[0]]:
                wrong.append(f"{SETS[number]['set']}: {case}: {answer.status}")
        assert not wrong
        lines = await one.logged(len(cases))
        by_case = {line["case"]: line for line in lines if line["case"]}
        for index, (number, case) in enumerate(cases):
            expected = options(case).get("by")
            if expected is None or case[1] == "TCP":
                continue
            line = by_case[f"case-{index}"]
            decided = f"rbac_access_denied_matched_policy[{full(expected)}]"
            if case[0] == "allow":
                decided, line = full(expected), {"details": line["rbac"]["enforced_effective_policy_id"]}
            if line["details"] != decided:
                wrong.append(f"{SETS[number]['set']}: {case}: {line['details']}")
        assert not wrong
        ended = {}
        for line in lines:
            if not line["case"]:
                ended.setdefault(line["address"], set()).add(line["ended"])
        for number, case in cases:
            if case[1] == "TCP" and "by" in options(case):
                expected = f"rbac_access_denied_matched_policy[{full(options(case)['by'])}]"
                assert expected in ended[one.address(number)], case


def documents(policies):
    return "---\n".join(yaml.dump(document(number, policy)) for number, policy in enumerate(policies))


def document(number, policy):
    metadata = {"name": policy.get("name", f"p{number}"), "namespace": policy.get("namespace", "shop")}
    if policy.get("dryRun"):
        metadata["annotations"] = {"istio.io/dry-run": "true"}
    spec = {name: policy[name] for name in ("action", "rules") if name in policy}
    if "selector" in policy:
        spec["selector"] = {"matchLabels": policy["selector"]}
    if "provider" in policy:
        spec["provider"] = {"name": policy["provider"]}
    return {"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": metadata, "spec": spec}


def options(case):
    return case[2] if len(case) > 2 else {}


def request(case):
    given = options(case)
    method, _, path = case[1].partition(" ")
    identity = given.get("as", "")
    if identity and "://" not in identity:
        namespace, account = identity.split("/")
        identity = f"spiffe://cluster.local/ns/{namespace}/sa/{account}"
    return Request(
        method=method,
        path=path.strip('"'),
        host=given.get("host", "orders"),
        headers=list(given.get("headers", {}).items()),
        principal=identity,
        source=given.get("from", "127.0.0.1"),
        server_name=given.get("sni", ""),
        claims=given.get("claims"),
        tcp=method == "TCP",
    )


def full(decision):
    if decision in WORDS:
        return WORDS[decision]
    name, _, rule = decision.partition("/")
    number, _, rest = rule.partition("-")
    prefix = f"ns[shop]-policy[{name}]-rule[{number}]"
    return f"{prefix}-{rest}" if rest else prefix


BY_HTTP2 = [
    [{"action": "DENY", "rules": [{"to": [{"operation": {"methods": ["POST", "DEL*", "*UT"]}}]}]}],
    [{"action": "ALLOW", "rules": [{"to": [{"operation": {"notMethods": ["POST"]}}]}]}],
    [{"action": "ALLOW", "rules": [{"to": [{"operation": {"methods": ["POST"]}}]}]}],
    [{"action": "DENY", "rules": [{"when": [{"key": "request.headers[x-role]", "values": ["admin"]}]}]}],
    [{"action": "ALLOW", "rules": [{"when": [{"key": "request.headers[x-role]", "notValues": ["admin"]}]}]}],
]


@pytest.mark.parametrize(
    ("place", "verdicts"),
    [
        (0, {"POST": 403, "post": 403, "Post": 403, "dELETE": 403, "put": 403, "GET": 200, "get": 200}),
        (1, {"POST": 403, "post": 403, "GET": 200}),
        (2, {"POST": 200, "post": 403}),
        (3, {"admin": 403, " admin": 403, "admin ": 403, "\tadmin": 403, "guest": 200, "ad min": 200}),
        (4, {"admin": 403, " admin": 403, "admin\t": 403, "guest": 200}),
    ],
)
async def test_spellings_that_only_http2_allows_bypass_no_policy(place, verdicts):
    async with rig([documents(BY_HTTP2[place])]) as one:
        for written, verdict in verdicts.items():
            given = {"method": written} if place < 3 else {"headers": [("x-role", written)]}
            assert await ask_by_http2(one.address(0), HTTP_PORT, **given) == verdict, written


async def test_a_dry_run_appears_in_the_access_log_and_in_the_statistics():
    policies = [
        {"action": "DENY", "dryRun": True, "rules": [{"to": [{"operation": {"paths": ["/admin"]}}]}]},
        {"action": "ALLOW", "dryRun": True, "rules": [{"to": [{"operation": {"methods": ["POST"]}}]}]},
    ]
    async with rig([documents(policies)]) as one:
        assert (await one.send(0, Request(path="/admin"))).status == 200
        assert (await one.send(0, Request(method="POST"))).status == 200
        denied, allowed = (line["rbac"] for line in await one.logged(2))
    assert denied["istio_dry_run_deny_shadow_engine_result"] == "denied"
    assert denied["istio_dry_run_deny_shadow_effective_policy_id"] == "ns[shop]-policy[p0]-rule[0]"
    assert denied["istio_dry_run_allow_shadow_engine_result"] == "denied"
    assert allowed["istio_dry_run_deny_shadow_engine_result"] == "allowed"
    assert allowed["istio_dry_run_allow_shadow_effective_policy_id"] == "ns[shop]-policy[p1]-rule[0]"


async def test_an_audited_request_is_marked_and_does_not_look_like_a_decision():
    policies = [{"action": "AUDIT", "rules": [{"to": [{"operation": {"paths": ["/a"], "ports": ["8080"]}}]}]}, {}]
    async with rig([documents(policies), documents([{"action": "AUDIT", "rules": [{}]}])]) as one:
        assert (await one.send(0, Request(path="/a"))).status == 403
        assert (await one.send(0, Request(path="/b"))).status == 403
        assert (await one.send(1, Request(tcp=True))).status == 200
        marked, other, connection = await one.logged(3)
    assert marked["rbac"]["istio_audit_shadow_effective_policy_id"] == "ns[shop]-policy[p0]-rule[0]"
    assert marked["hint"] is True
    assert "enforced_effective_policy_id" not in marked["rbac"]
    assert "istio_audit_shadow_effective_policy_id" not in other["rbac"]
    assert other["hint"] is False
    assert connection["network"]["istio_audit_shadow_effective_policy_id"] == "ns[shop]-policy[p0]-rule[0]"


async def test_not_one_byte_of_a_denied_connection_reaches_the_application():
    """A client may read the first bytes of a server-first protocol (see docs/authorization.md), but a denied client can
    send none."""
    heard = bytearray()

    async def listen(reader, writer):
        writer.write(b"220 ready\n")
        heard.extend(await reader.read())
        writer.close()

    async with rig([documents([{"action": "DENY", "rules": [{}]}])], tcp_app=listen) as one:
        reader, writer = await asyncio.open_connection(one.address(0), 7000)
        writer.write(b"GET /secret\n")
        await reader.read()  # until it is closed
        writer.close()
    assert heard == b""


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        ("NONE", ["/a/../b", "/a//b", "/a%2Fb", "/%61"]),
        ("BASE", ["/b", "/a//b", "/a%2Fb", "/a"]),
        ("MERGE_SLASHES", ["/b", "/a/b", "/a%2Fb", "/a"]),
        ("DECODE_AND_MERGE_SLASHES", ["/b", "/a/b", "/a/b", "/a"]),
    ],
)
async def test_the_application_gets_paths_normalized_as_the_mesh_config_sets(wanted, seen):
    async with rig([""], Settings(path_normalization=PathNormalization(wanted))) as one:
        answers = [await one.send(0, Request(path=path)) for path in ("/a/../b", "/a//b", "/a%2Fb", "/%61")]
        assert [answer.body.split(" ")[1] for answer in answers] == seen


@pytest.mark.parametrize("wanted", list(PathNormalization))
async def test_a_policy_holds_however_paths_are_normalized(wanted):
    deny = documents([{"action": "DENY", "rules": [{"to": [{"operation": {"paths": ["/admin"]}}]}]}])
    allow = documents([{"action": "ALLOW", "rules": [{"to": [{"operation": {"paths": ["/public/*"]}}]}]}])
    tricks = [
        "/admin",
        "//admin",
        "/x/../admin",
        "/./admin",
        "/x/..%2fadmin",
        "/%2fadmin",
        "/admin;x",
        "/x%5C..%5Cadmin",
    ]
    escapes = ["/public/../admin", "/public/..%2fadmin", "/public/%2e%2e/admin", "/public/..;/admin"]
    async with rig([deny, allow], Settings(path_normalization=wanted)) as one:
        assert {(await one.send(0, Request(path=path))).status for path in tricks} == {403}
        assert {(await one.send(1, Request(path=path))).status for path in escapes} == {403}
        assert (await one.send(0, Request(path="/else"))).status == 200
        assert (await one.send(1, Request(path="/public/a"))).status == 200


async def test_a_principal_of_an_old_trust_domain_is_one_of_the_new():
    allow = documents([{"rules": [{"from": [{"source": {"principals": ["cluster.local/ns/shop/sa/web"]}}]}]}])
    settings = Settings(trust_domain="new.domain", trust_domain_aliases=("old.domain",))
    async with rig([allow], settings) as one:
        statuses = [
            (await one.send(0, Request(principal=f"spiffe://{domain}/ns/shop/sa/web"))).status
            for domain in ("new.domain", "old.domain", "cluster.local", "else.where")
        ]
    assert statuses == [200, 200, 403, 403]


async def test_an_old_trust_domain_in_trust_domains_means_also_the_new_one():
    allow = documents([{"rules": [{"from": [{"source": {"trustDomains": ["old.domain"]}}]}]}])
    settings = Settings(trust_domain="new.domain", trust_domain_aliases=("old.domain",))
    async with rig([allow], settings) as one:
        statuses = [
            (await one.send(0, Request(principal=f"spiffe://{domain}/ns/shop/sa/web"))).status
            for domain in ("new.domain", "old.domain", "cluster.local", "else.where")
        ]
    assert statuses == [200, 200, 403, 403]


def test_a_rejected_policy_denies_under_a_name_that_ends_with_refused():
    policy = AuthorizationPolicy("broken", "shop", refused=True)
    assert rule_id(policy, 0) == "ns[shop]-policy[broken]-refused"


def test_a_policy_bound_to_a_gateway_does_not_apply_to_workloads():
    policy = AuthorizationPolicy("gate", "shop", Action.DENY, rules=(AuthorizationRule(),), targets=("Gateway edge",))
    view = GroupView(ProxyKind.SIDECAR, (), OutboundPolicy.ALLOW_ANY, Settings(), authorization=(policy,))
    assert http_filters(view) == network_filters(view) == ()
