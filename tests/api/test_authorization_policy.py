import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.reading import document, read, told, value
from weft.api.authorization_policy import MOST_RULES, MOST_VALUES
from weft.api.document import Document
from weft.api.parse import parse
from weft.mesh.mesh import Mesh
from weft.model.authorization_policy import Action, AuthorizationRule, Condition, Operation, Source
from weft.model.group import Group, ProxyKind
from weft.model.policy import GATEWAY_NAME
from weft.translate.guards import guards_of
from weft.translate.view import group_view


def written(spec, annotations="{}", namespace="shop"):
    return (
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n"
        f"metadata: {{name: p, namespace: {namespace}, annotations: {annotations}}}\nspec: {spec}\n"
    )


def rule(text):
    return written(f"{{rules: [{text}]}}")


def first(text):
    return value(rule(text)).rules[0]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_reads_a_whole_policy_in_every_version(version):
    found = value(
        written(
            """{selector: {matchLabels: {app: orders}}, action: DENY, rules: [{
            from: [{source: {principals: [a/b], notPrincipals: ["*"], namespaces: [x], ipBlocks: [10.0.0.0/8]}}],
            to: [{operation: {methods: [GET], paths: [/a*], notPaths: ["/b/{*}"], ports: ["80"], hosts: [a.com]}}],
            when: [{key: "request.headers[X-Env]", values: [a], notValues: [b]}]}]}"""
        ).replace("/v1", f"/{version}")
    )
    assert (found.action, found.selector, found.origin.key.kind) == (
        Action.DENY,
        (("app", "orders"),),
        "AuthorizationPolicy",
    )
    source = Source(principals=("a/b",), not_principals=("*",), namespaces=("x",), ip_blocks=("10.0.0.0/8",))
    operation = Operation(methods=("GET",), paths=("/a*",), not_paths=("/b/{*}",), ports=(80,), hosts=("a.com",))
    condition = Condition("request.headers", ("x-env",), ("a",), ("b",))
    assert found.rules == (AuthorizationRule((source,), (operation,), (condition,), line=4),)


def test_a_policy_with_an_empty_or_missing_spec_allows_nothing():
    for text in (written("{}"), written("{}").rsplit("spec", 1)[0], written("{rules: []}")):
        found = value(text)
        assert (found.action, found.rules, found.selector) == (Action.ALLOW, (), ())
    assert value(written("{rules: [{}]}")).rules == (AuthorizationRule(line=4),)


def test_service_accounts_without_a_namespace_are_in_the_policys_namespace():
    assert first("{from: [{source: {serviceAccounts: [web, test/cart]}}]}").sources[0].service_accounts == (
        "shop/web",
        "test/cart",
    )
    when = first("{when: [{key: source.serviceAccount, values: [web]}]}").conditions[0]
    assert when == Condition("source.serviceAccount", (), ("shop/web",))


def test_reads_trust_domains_of_sources_and_conditions():
    source = first("{from: [{source: {trustDomains: [a.com, 'b-*'], notTrustDomains: ['*.c']}}]}").sources[0]
    assert (source.trust_domains, source.not_trust_domains) == (("a.com", "b-*"), ("*.c",))
    when = first("{when: [{key: source.trustDomain, values: [a.com]}]}").conditions[0]
    assert when == Condition("source.trustDomain", (), ("a.com",))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("request.headers[User-Agent]", ("request.headers", ("user-agent",))),
        ("request.auth.claims[a][b][c]", ("request.auth.claims", ("a", "b", "c"))),
        ("request.auth.claims[https://a.b/c]", ("request.auth.claims", ("https://a.b/c",))),
        (
            "experimental.envoy.filters.network.mysql_proxy[db.table]",
            ("experimental.envoy.filters", ("envoy.filters.network.mysql_proxy", "db.table")),
        ),
        ("connection.sni", ("connection.sni", ())),
    ],
)
def test_reads_the_keys_of_conditions(key, expected):
    found = first(f"{{when: [{{key: '{key}', values: [x]}}]}}").conditions[0]
    assert (found.key, found.path) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{from: [{source: {ipBlocks: [10.0.0/8]}}]}", "`10.0.0/8` is not an IP address or CIDR range (for example 10.0.0.0/8)"),
        ("{from: [{source: {ipBlocks: [10.0.0.0/0.0.0.255]}}]}", "`10.0.0.0/0.0.0.255` is not an IP address or CIDR range (for example 10.0.0.0/8)"),
        ("{from: [{source: {remoteIpBlocks: ['fe80::1%eth0']}}]}", "`fe80::1%eth0` is not an IP address or CIDR range (for example 10.0.0.0/8)"),
        ("{from: [{source: {principal: [a]}}]}", "unknown field `principal` (did you mean `principals`?)"),
        ("{from: [{source: {}}]}", "`source` is empty (leave the whole entry out to match every source)"),
        ("{from: [{}]}", "`source` is required"),
        ("{from: []}", "`from` is empty (leave `from` out to match everything)"),
        ("{to: []}", "`to` is empty (leave `to` out to match everything)"),
        ("{to: [{operation: {methods: []}}]}", "`methods` is empty (leave `methods` out to match everything)"),
        ("{to: [{operation: {paths: ['']}}]}", '`paths` contains an empty text (to match any value, write "*")'),
        ("{to: [{operation: {ports: ['0']}}]}", "a port is a number between 1 and 65535, not `0`"),
        ("{to: [{operation: {ports: [http]}}]}", "a port is a number between 1 and 65535, not `http`"),
        ("{to: [{operation: {ports: [80]}}]}", '`ports` must be text, not the number 80 (put it in quotes: "80")'),
        ("{to: [{operation: {paths: ['/a/{*}.txt']}}]}", "`/a/{*}.txt` is not a path template (`{*}` and `{**}` must be whole segments, and `*` and braces are not allowed elsewhere)"),
        ("{to: [{operation: {paths: ['/{**}/a/{*}']}}]}", "`{**}` must be the last of the wildcards in `/{**}/a/{*}`"),
        ("{to: [{operation: {paths: ['/{*}/{id}']}}]}", "`/{*}/{id}` is not a path template (`{*}` and `{**}` must be whole segments, and `*` and braces are not allowed elsewhere)"),
        ("{when: [{key: request.header, values: [a]}]}", "unknown key `request.header` (did you mean `request.headers[NAME]`?)"),
        ("{when: [{key: 'request.headers', values: [a]}]}", "`request.headers` is not a key (write `request.headers[NAME]`, without quotes)"),
        ("{when: [{key: 'request.headers[a b]', values: [a]}]}", "`a b` is not a header name"),
        ("{when: [{key: destination.labels, values: [a]}]}", "the key `destination.labels` no longer exists (use the policy's `selector`)"),
        ("{when: [{key: source.ip, values: [x]}]}", "`x` is not an IP address or CIDR range (for example 10.0.0.0/8)"),
        ("{when: [{key: destination.port, values: ['99999']}]}", "a port is a number between 1 and 65535, not `99999`"),
        ("{when: [{key: source.ip}]}", "the condition on source.ip has neither `values` nor `notValues`"),
        ("{from: [{source: {serviceAccounts: ['a*']}}]}", "`a*` is not a service account (write NAMESPACE/NAME or NAME, without `*`)"),
        ("{from: [{source: {serviceAccounts: [a], namespaces: [b]}}]}", "`serviceAccounts` cannot be combined with principals or namespaces (all of them match the caller's identity)"),
        ("{from: [{source: {trustDomains: ['a*b']}}]}", "`a*b` may have one `*`, at its beginning or end (write the trust domain, or `prefix*`, `*suffix` or `*`)"),
        ("{from: [{source: {notTrustDomains: ['*a*']}}]}", "`*a*` may have one `*`, at its beginning or end (write the trust domain, or `prefix*`, `*suffix` or `*`)"),
        ("{from: [{source: {trustDomains: [a.com/ns/b]}}]}", "`a.com/ns/b` is not a trust domain: a trust domain has no `/` (write a.com)"),
        ("5", "an item of `rules` must be a mapping, not the number 5"),
    ],
)  # fmt: skip
def test_rejects_policies_that_cannot_be_enforced_exactly(text, said):
    assert told(rule(text)) == [f"4 {said}"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{to: [{operation: {paths: [admin]}}]}", "no request's path matches `admin`: it does not begin with /"),
        ("{to: [{operation: {paths: ['/a?b']}}]}", "no request's path matches `/a?b`: a path ends before `?` and `#`"),
        ("{to: [{operation: {paths: [/a/../b]}}]}", "no request's path matches `/a/../b`: paths are normalized"),
        ("{to: [{operation: {paths: [/%61]}}]}", "no request's path matches `/%61`: percent-encoded letters"),
        ("{to: [{operation: {paths: [/ä]}}]}", "no request's path matches `/ä`: requests contain such characters"),
        ("{to: [{operation: {paths: ['/a/*/b']}}]}", "the `*` inside `/a/*/b` is literal"),
        ("{to: [{operation: {methods: [get]}}]}", "no request has the method `get`: methods are in upper case"),
        ("{to: [{operation: {hosts: [a.com/x]}}]}", "no request's host matches `a.com/x`"),
        ("{from: [{source: {principals: ['spiffe://a/b']}}]}", "a principal has no `spiffe://` prefix"),
        ("{from: [{source: {principals: ['*/sa/*']}}]}", "the `*` inside `*/sa/*` is literal"),
    ],
)
def test_warns_about_values_that_never_match(text, said):
    (found,) = told(rule(text))
    assert found.startswith(f"4 warning: {said}")


def test_deny_and_custom_need_rules_and_custom_a_provider():
    assert told(written("{action: DENY}")) == [
        "4 a DENY policy without `rules` never matches, and has no effect (write `rules: [{}]` to match every request)"
    ]
    assert told(written("{action: CUSTOM, rules: [{}]}"))[0].startswith("4 a CUSTOM policy needs a `provider`")
    assert value(written("{action: CUSTOM, provider: {name: x}, rules: [{}]}")).provider == "x"
    assert told(written("{provider: {name: x}}")) == [
        "4 `provider` is only for CUSTOM policies, and the action of this policy is ALLOW"
    ]
    assert value(written("{action: AUDIT}")).rules == ()
    assert told(written("{action: BLOCK}"))[0].startswith("4 `action` cannot be `BLOCK`")


def test_an_annotation_makes_a_policy_a_dry_run():
    assert value(written("{}", "{istio.io/dry-run: 'true'}")).dry_run
    assert not value(written("{}", "{istio.io/dry-run: 'false'}")).dry_run
    assert told(written("{}", "{istio.io/dry-run: 'yes'}")) == ["3 `istio.io/dry-run` must be true or false, not `yes`"]
    (warned,) = told(written("{action: AUDIT}", "{istio.io/dry-run: '1'}"))
    assert "only counts what it matches" in warned


def test_targets_may_only_be_gateways():
    bound = "{targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: edge}]}"
    assert told(written(bound)) == []
    assert value(written(bound)).targets == ("Gateway edge",)
    (said,) = told(written("{targetRefs: [{kind: Service, name: orders}]}"))
    assert said == (
        "4 this policy is bound to Service orders by `targetRefs`, and this version of weft runs no waypoints: "
        "the policy is NOT enforced (use a `selector` to bind it to workloads)"
    )
    both = told(written("{selector: {matchLabels: {a: b}}, targetRef: {kind: Service, name: a}}"))
    assert any("only one of `selector` and `targetRefs`" in line for line in both)


def test_too_many_rules_or_values_are_rejected():
    many = ", ".join(f"a{number}" for number in range(4_000))
    operations = ", ".join(f"{{operation: {{hosts: [{many}]}}}}" for _ in range(6))
    assert told(rule(f"{{to: [{operations}]}}")) == [
        f"4 the rules have 24000 values, and at most {MOST_VALUES} can be enforced "
        "(use prefixes and CIDR ranges, or several policies)"
    ]
    assert told(rule(", ".join(["{}"] * (MOST_RULES + 1)))) == [
        f"4 the policy has {MOST_RULES + 1} rules, and at most {MOST_RULES} can be enforced"
    ]
    assert told(rule("{to: [{operation: {paths: ['" + "/a" * 201 + "']}}]}")) == [
        "4 the path has more than 200 segments"
    ]


def closed(text):
    return read(text).closed


def test_a_rejected_policy_is_replaced_by_a_deny_of_all_requests():
    (found,) = closed(written("{selector: {matchLabels: {app: orders}}, rules: [{form: []}]}"))
    assert (found.action, found.selector, found.rules) == (Action.DENY, (("app", "orders"),), (AuthorizationRule(),))
    assert found.refused


@pytest.mark.parametrize(
    "text",
    [
        written("{selectr: {matchLabels: {app: orders}}}"),
        written("{selector: {matchLabels: {app: 5}}}"),
        written("{selector: {matchLabels: {app: '?!'}}}"),
        written("{selector: {matchLabel: {app: orders}}}"),
        written("{selector: 5}"),
        written("5"),
        written("{}").replace("istio.io/v1", "istio.io/v9"),
    ],
)
def test_a_rejected_policy_with_an_invalid_selector_closes_its_namespace(text):
    (found,) = closed(text)
    assert (found.action, found.namespace, found.selector, found.rules) == (
        Action.DENY,
        "shop",
        (),
        (AuthorizationRule(),),
    )


def test_a_rejected_policy_with_a_selector_and_targets_closes_the_selected_workloads():
    (found,) = closed(written("{selector: {matchLabels: {app: orders}}, targetRefs: [{kind: Service, name: a}]}"))
    assert (found.selector, found.targets, found.refused) == ((("app", "orders"),), (), True)


def test_a_rejected_policy_for_a_gateway_closes_only_that_gateway():
    bound = "targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: edge}]"
    (found,) = closed(written(f"{{{bound}, rules: 5}}"))
    assert (found.action, found.targets, found.refused) == (Action.DENY, ("Gateway edge",), True)


def test_a_rejected_policy_that_would_have_denied_nothing_closes_nothing():
    assert closed(written("{action: AUDIT, rules: 5}")) == ()
    assert closed(written("{rules: 5}", "{istio.io/dry-run: 'true'}")) == ()
    assert closed(written("{targetRefs: [{kind: Service, name: edge}]}")) == ()
    assert closed(written("{}")) == ()


WORDS = st.sampled_from(
    ["", "*", "/", "/a/*", "*b", "{*}", "/{*}/{**}", "(", "[", "\\", "a[b]", "request.headers[x]", "10.0.0.0/8", "80", "é", "\ud800"]
) | st.text(max_size=12)  # fmt: skip
LISTS = st.lists(WORDS, max_size=3) | WORDS | st.none() | st.integers()
NAMES = st.sampled_from(
    [
        "principals",
        "notPrincipals",
        "namespaces",
        "ipBlocks",
        "remoteIpBlocks",
        "requestPrincipals",
        "serviceAccounts",
        "hosts",
        "notHosts",
        "ports",
        "methods",
        "paths",
        "notPaths",
        "values",
        "notValues",
        "key",
    ]
) | st.text(string.ascii_letters, max_size=6)
PARTS = st.dictionaries(NAMES, LISTS, max_size=4)
CONDITION = st.fixed_dictionaries(
    {
        "key": st.sampled_from(
            ["source.ip", "remote.ip", "source.principal", "request.headers[a]", "request.auth.claims[a][b]",
             "destination.port", "connection.sni", "experimental.envoy.filters.http.x[y]", "request.auth.audiences"]
        )
        | WORDS
    },
    optional={"values": LISTS, "notValues": LISTS},
)  # fmt: skip
RULES = st.fixed_dictionaries(
    {},
    optional={
        "from": st.lists(st.fixed_dictionaries({"source": PARTS}), max_size=2) | LISTS,
        "to": st.lists(st.fixed_dictionaries({"operation": PARTS}), max_size=2) | LISTS,
        "when": st.lists(CONDITION, max_size=2) | LISTS,
    },
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "action": st.sampled_from(["ALLOW", "DENY", "AUDIT", "CUSTOM", "x"]) | LISTS,
        "rules": st.lists(RULES | LISTS, max_size=3) | LISTS,
        "selector": st.fixed_dictionaries({"matchLabels": st.dictionaries(WORDS, WORDS, max_size=2)}) | LISTS,
        "provider": st.fixed_dictionaries({"name": LISTS}) | LISTS,
        "targetRefs": st.lists(st.dictionaries(NAMES, LISTS, max_size=2), max_size=2),
    },
)


@settings(max_examples=300, deadline=None)
@given(SPECS)
def test_any_policy_is_enforced_or_rejected_and_closed(spec):
    original = document(written("{}"))
    body = dict(original.body) | {"spec": spec}
    parsed = parse(Document(original.key, original.api_version, body, "a.yaml", "/x", 1, original.lines))
    assert bool(parsed.values) != any(problem.severity == "error" for problem in parsed.problems)
    mesh = Mesh()
    for found in (*parsed.values, *parsed.closed):
        mesh.apply(original.key, (found,))
        labels = found.selector
        kind = ProxyKind.SIDECAR
        if found.targets:
            kind, labels = ProxyKind.GATEWAY, ((GATEWAY_NAME, found.targets[0].partition(" ")[2]),)
        guards = guards_of(group_view(mesh, Group(kind, "shop", labels)))
        assert guards.http or found.dry_run or not found.rules


@pytest.mark.parametrize(
    "metadata",
    [
        'annotations: {istio.io/dryrun: "true"}',
        'annotations: {istio.io/dry_run: "true"}',
        'annotations: {security.istio.io/dry-run: "true"}',
        'labels: {istio.io/dry-run: "true"}',
    ],
)
def test_a_misspelled_dry_run_annotation_is_reported(metadata):
    text = written("{rules: [{}]}").replace("annotations: {}", metadata)
    (line,) = told(text)
    assert "has no effect on an AuthorizationPolicy" in line
    assert 'did you mean the annotation `istio.io/dry-run: "true"`? without it the policy is enforced' in line
    assert not value(text).dry_run


def test_unknown_istio_annotations_are_reported_and_those_of_other_tools_are_not():
    assert len(told(written("{rules: [{}]}", annotations="{istio.io/speed: fast}"))) == 1
    assert told(written("{rules: [{}]}", annotations="{istio.io/rev: one, example.com/x: y}")) == []


def test_a_dry_run_without_quotes_is_reported_once():
    (line,) = told(written("{rules: [{}]}", annotations="{istio.io/dry-run: true}"))
    assert 'must be text, not true (put it in quotes: "true")' in line


def test_fields_that_belong_below_source_or_operation_are_reported():
    said = told(rule("{from: [{source: , principals: [a], notNamespaces: [b]}]}"))
    assert [line.split(" ", 1)[1] for line in said] == [
        "`principals` belongs below `source` (indent it below `source:`)",
        "`notNamespaces` belongs below `source` (indent it below `source:`)",
    ]
    (line,) = told(rule("{to: [{operation: , paths: [/a]}]}"))
    assert "indent it below `operation:`" in line


def test_each_wrong_value_is_reported_with_its_own_index():
    parsed = read(rule("{to: [{operation: {ports: [8000, http], paths: ['', a]}}]}"))
    fields = [problem.where.field.partition("operation.")[2] for problem in parsed.problems]
    assert sorted(fields) == ["paths[0]", "paths[1]", "ports[0]", "ports[1]"]


def test_labels_that_belong_below_match_labels_are_reported():
    (line,) = told(written("{selector: {app: x}, rules: [{}]}"))
    assert "`app` belongs below `matchLabels` (indent it below `matchLabels:`)" in line
    (line,) = told(written("{selector: {matchlabels: {app: x}}, rules: [{}]}"))
    assert "did you mean `matchLabels`?" in line
