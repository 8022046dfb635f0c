import asyncio

import yaml
from envoy.config.rbac.v3.rbac_pb2 import Permission
from envoy.extensions.path.match.uri_template.v3.uri_template_match_pb2 import UriTemplateMatchConfig
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from translate.authorization_reference import verdict
from translate.policy_rig import HTTP_PORT, TCP_PORT, Request, rig
from weft.model.authorization_policy import Action, AuthorizationPolicy, AuthorizationRule, Condition, Operation, Source
from weft.model.settings import Settings
from weft.translate.rbac import Connections, rbac_policy

NAMESPACES = ("shop", "test", "team-a")
ACCOUNTS = ("web", "cart")
ISSUERS = ("https://login.example.com", "issuer.example")


def some(values, most=3):
    return st.lists(st.sampled_from(values), min_size=1, max_size=most, unique=True)


PRINCIPALS = some(
    (
        *(f"cluster.local/ns/{namespace}/sa/{account}" for namespace in NAMESPACES for account in ACCOUNTS),
        "*",
        "*/sa/web",
        "cluster.local/ns/shop/*",
        "*/ns/team-a/sa/cart",
        "cluster.local/ns/s*",
    )
)
NAMESPACE_VALUES = some(("shop", "test", "team-*", "*a", "*", "*o*", "none"))
BLOCKS = some(("127.0.0.1", "127.0.0.0/24", "127.0.8.0/24", "127.0.8.8/32", "0.0.0.0/0", "192.0.2.0/24", "::/0"))
TOKENS = some(
    (*(f"{issuer}/{name}" for issuer in ISSUERS for name in ("alice", "*", "al*")), "*", "*/bob", "*.example/alice")
)
PATH_VALUES = some(
    (
        "/a", "/a/*", "*/c", "*", "/a/b", "/a/b/c", "/a*", "*c", "/b/", "/a/{*}", "/{*}/b", "/a/{**}", "/{*}/{**}",
        "/a/{**}/c", "/a;v", "/",
    )
)  # fmt: skip
PORTS = some(("8080", "7000", "1"))


@st.composite
def fields(draw, choices, most=3):
    names = draw(st.lists(st.sampled_from(sorted(choices)), min_size=1, max_size=most, unique=True))
    return {name: draw(choices[name]) for name in names}


def negatable(choices):
    return choices | {f"not{name[0].upper()}{name[1:]}": values for name, values in choices.items()}


SOURCES = fields(
    negatable({"ipBlocks": BLOCKS, "remoteIpBlocks": BLOCKS, "principals": PRINCIPALS, "namespaces": NAMESPACE_VALUES})
    | {"requestPrincipals": TOKENS, "notRequestPrincipals": TOKENS}
) | fields(negatable({"serviceAccounts": some(("web", "test/web", "team-a/cart"))}), most=1)
OPERATIONS = fields(
    negatable(
        {
            "hosts": some(("orders", "*.test", "a.test", "*", "or*", "Orders")),
            "methods": some(("GET", "POST", "*", "P*", "*T")),
            "paths": PATH_VALUES,
            "ports": PORTS,
        }
    )
)
CONDITIONS = {
    "source.ip": BLOCKS,
    "remote.ip": BLOCKS,
    "source.namespace": NAMESPACE_VALUES,
    "source.principal": PRINCIPALS,
    "source.serviceAccount": some(("web", "test/web")),
    "request.headers[x-a]": some(("1", "2", "1*", "*2", "*")),
    "request.headers[X-B]": some(("1", "*")),
    "request.auth.principal": TOKENS,
    "request.auth.audiences": some(("x", "y*", "*")),
    "request.auth.presenter": some(("x", "*")),
    "request.auth.claims[groups]": some(("admins", "ops-*", "*")),
    "request.auth.claims[org][team]": some(("blue", "*d")),
    "destination.ip": some(("127.64.0.0/10", "127.2.0.0/16")),
    "destination.port": PORTS,
    "connection.sni": some(("a.test", "*.test", "*")),
}


@st.composite
def conditions(draw):
    key = draw(st.sampled_from(sorted(CONDITIONS)))
    sides = draw(st.sampled_from((("values",), ("notValues",), ("values", "notValues"))))
    return {"key": key} | {side: draw(CONDITIONS[key]) for side in sides}


@st.composite
def rules(draw):
    rule = {}
    if draw(st.booleans()):
        rule["from"] = [{"source": each} for each in draw(st.lists(SOURCES, min_size=1, max_size=2))]
    if draw(st.booleans()):
        rule["to"] = [{"operation": each} for each in draw(st.lists(OPERATIONS, min_size=1, max_size=2))]
    if draw(st.integers(0, 2)) == 0:
        rule["when"] = draw(st.lists(conditions(), min_size=1, max_size=2))
    return rule


@st.composite
def policy_sets(draw):
    result = []
    for number in range(draw(st.integers(1, 3))):
        action = draw(st.sampled_from(("ALLOW", "ALLOW", "DENY", "DENY", "AUDIT", "CUSTOM")))
        least = 1 if action in ("DENY", "CUSTOM") else 0
        metadata = {"name": f"p{number}", "namespace": draw(st.sampled_from(("shop", "shop", "istio-system", "test")))}
        if draw(st.integers(0, 5)) == 5:
            metadata["annotations"] = {"istio.io/dry-run": "true"}
        spec = {"action": action, "rules": draw(st.lists(rules(), min_size=least, max_size=2))}
        if action == "CUSTOM":
            spec["provider"] = {"name": "nobody"}
        if draw(st.integers(0, 3)) == 3:
            spec["selector"] = {"matchLabels": {"app": draw(st.sampled_from(("orders", "orders", "cart")))}}
        document = {"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy"}
        result.append(document | {"metadata": metadata, "spec": spec})
    return result


SEGMENTS = st.sampled_from(("a", "b", "c", "x", "%61", "a;v", "b;v=1", "", ".", "..", "a.b"))
SEPARATORS = st.sampled_from(("/", "/", "/", "/", "//", "%2f", "%2F", "%5C", "\\", "/..%2f"))


@st.composite
def paths(draw):
    pieces = draw(st.lists(st.tuples(SEPARATORS, SEGMENTS), min_size=0, max_size=3))
    return (
        "/"
        + draw(SEGMENTS)
        + "".join(separator + segment for separator, segment in pieces)
        + draw(st.sampled_from(("", "", "?q=/a")))
    )


@st.composite
def requests(draw):
    identity = draw(st.sampled_from(("", "", "cluster.local", "cluster.local", "other")))
    namespace, account = draw(st.sampled_from(NAMESPACES)), draw(st.sampled_from(ACCOUNTS))
    headers = draw(
        st.lists(
            st.tuples(st.sampled_from(("x-a", "X-B", "x_a", "x-other")), st.sampled_from(("1", "12", "2", "0"))),
            max_size=2,
            unique_by=lambda pair: pair[0],
        )
    )
    if draw(st.integers(0, 2)) == 2:
        headers.append(
            ("x-forwarded-for", draw(st.sampled_from(("192.0.2.1", "10.0.0.1", "127.0.8.8", "2001:db8::1"))))
        )
    return Request(
        method=draw(st.sampled_from(("GET", "POST", "PUT"))),
        path=draw(paths()),
        host=draw(st.sampled_from(("orders", "ORDERS", "orders:80", "a.test", "a.test.", "b.a.test:1", "else"))),
        headers=headers,
        principal=f"spiffe://{identity}/ns/{namespace}/sa/{account}" if identity else "",
        source=draw(st.sampled_from(("127.0.0.1", "127.0.8.8", "127.0.8.7"))),
        server_name=draw(st.sampled_from(("", "a.test", "test"))) if identity else "",
        claims=draw(st.none() | claims()),
        tcp=draw(st.integers(0, 3)) == 3,
    )


def claims():
    texts = st.sampled_from(("x", "y1", "z"))
    return st.fixed_dictionaries(
        {"iss": st.sampled_from(ISSUERS)},
        optional={
            "sub": st.sampled_from(("alice", "bob", "al")),
            "aud": texts | st.lists(texts, min_size=1, max_size=2),
            "azp": texts,
            "groups": st.sampled_from(("admins", "ops-1", ["x", "admins"], ["ops-2"], [])),
            "org": st.sampled_from(({"team": "blue"}, {"team": ["red"]}, {}, "blue")),
        },
    )


# Without shrinking: each try starts an Envoy, and one policy set with one request is what is shown anyway.
@settings(
    max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)
@given(st.lists(st.tuples(policy_sets(), st.lists(requests(), min_size=6, max_size=6)), min_size=12, max_size=12))
def test_real_envoy_and_the_reference_never_disagree(examples):
    asyncio.run(_compare(examples))


async def _compare(examples):
    disagreements = []
    async with rig(["---\n".join(map(yaml.dump, policies)) for policies, _ in examples]) as one:

        async def ask(number, policies, request):
            answer = await one.send(number, request)
            port = TCP_PORT if request.tcp else HTTP_PORT
            expected = verdict(policies, request, address=one.address(number), port=port)
            if answer.status not in ((200,) if expected == "allow" else (403,)):
                disagreements.append((policies, request, expected, answer.status))

        await asyncio.gather(
            *(ask(number, policies, request) for number, (policies, sent) in enumerate(examples) for request in sent)
        )
    for policies, request, expected, status in disagreements[:2]:
        note(yaml.dump_all(policies))
        note(f"{request}\nreference: {expected}, Envoy: {status}")
    assert not disagreements


TEMPLATES = ("/foo/{*}", "/foo/{**}", "/foo/{**}/", "/foo/{*}/bar/{**}", "/{*}/b", "/{**}", "/a/{**}/c", "/{*}/{**}")
TEMPLATE_PATHS = [
    "/foo/bar",
    "/foo/",
    "/foo",
    "/foo//",
    "/foo/bar/",
    "/foo/bar/baz.txt",
    "/foo/buzz/bar/",
    "/foo/buzz/bar/baz",
    "/foo/buzz/bar",
    "/",
    "/a/b",
    "//b",
    "/a/c",
    "/a//c",
    "/a/b/c",
    "/a/x/y/c",
    "/x/",
    "/x",
]


async def test_templates_match_as_envoys_own_template_matcher(monkeypatch):
    """Only for ordinary characters: Envoy's matcher allows fewer characters than a path may contain."""

    async def statuses():
        policies = [
            AuthorizationPolicy("p", "shop", rules=(AuthorizationRule(operations=(Operation(paths=(each,)),)),))
            for each in TEMPLATES
        ]
        async with rig([[policy] for policy in policies]) as one:
            return {
                (template, path): (await one.send(number, Request(path=path))).status
                for number, template in enumerate(TEMPLATES)
                for path in TEMPLATE_PATHS
            }

    def envoys_own(_, operation):
        (template,) = operation.paths
        result = Permission()
        result.uri_template.name = "envoy.path.match.uri_template.uri_template_matcher"
        written = template.replace("{*}", "*").replace("{**}", "**")
        result.uri_template.typed_config.Pack(UriTemplateMatchConfig(path_template=written))
        yield result

    ours = await statuses()
    monkeypatch.setattr("weft.translate.rbac._Builder.operation", envoys_own)
    assert ours == await statuses()
    assert set(ours.values()) == {200, 403}


def test_on_a_published_socket_the_port_is_fixed_and_the_address_is_that_of_the_proxy_header():
    rule = AuthorizationRule(
        sources=(Source(ip_blocks=("10.0.0.0/8",)),), operations=(Operation(ports=(443,)), Operation(ports=(80,)))
    )
    made = rbac_policy(rule, Action.DENY, Settings(), http=False, connections=Connections(published=443))
    said = str(made)
    assert "source_ip" in said and "direct_remote_ip" not in said and "destination_port" not in said
    here, elsewhere = made.permissions[0].or_rules.rules
    assert here.any and elsewhere.not_rule.any
    elsewhere = str(rbac_policy(rule, Action.DENY, Settings(), http=False))
    assert "direct_remote_ip" in elsewhere and "destination_port: 443" in elsewhere


def test_names_in_unverified_certificates_match_no_source():
    rule = AuthorizationRule(
        sources=(
            Source(principals=("*",)),
            Source(namespaces=("shop",)),
            Source(service_accounts=("shop/web",)),
            Source(trust_domains=("cluster.local",)),
            Source(not_principals=("cluster.local/ns/shop/sa/web",)),
        ),
        conditions=(Condition("source.principal", values=("*",)),),
    )
    unverified = rbac_policy(rule, Action.ALLOW, Settings(), http=True, connections=Connections(unverified=True))
    assert "authenticated" not in str(unverified)
    either, condition = unverified.principals[0].and_ids.ids
    *named, other = either.or_ids.ids
    assert all(each.not_id.any for each in (*named, condition))
    assert other.not_id.not_id.any
