import re

import pytest
from envoy.config.listener.v3.listener_pb2 import Listener
from hypothesis import given, settings
from hypothesis import strategies as st

from api.reading import document
from weft.api.document import Document
from weft.api.parse import parse
from weft.envoy.validate import validate
from weft.model.group import ProxyKind
from weft.model.inbound_port import InboundPort
from weft.model.names import ObjectKey
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.translate import rbac_matchers as matchers
from weft.translate.inbound import virtual_inbound
from weft.translate.view import GroupView


def matches(matcher, value):
    """As Envoy does, for ASCII."""
    kind = matcher.WhichOneof("match_pattern")
    wanted = getattr(matcher, kind)
    if kind == "safe_regex":
        return bool(re.fullmatch(wanted.regex.replace(r"\C", "."), value, re.DOTALL))
    return {"exact": str.__eq__, "prefix": str.startswith, "suffix": str.endswith}[kind](value, wanted)


@pytest.mark.parametrize(
    ("pattern", "kind"), [("a", "exact"), ("a*", "prefix"), ("*a", "suffix"), ("*", "safe_regex"), ("**", "suffix")]
)
def test_a_value_is_exact_a_prefix_a_suffix_or_anything(pattern, kind):
    assert matchers.text(pattern).WhichOneof("match_pattern") == kind


def test_the_added_prefix_also_precedes_a_wildcard():
    assert matchers.text("a/b", before="x://").exact == "x://a/b"
    assert matchers.text("a/*", before="x://").prefix == "x://a/"
    assert matches(matchers.text("*/b.c", before="x://"), "x://a/b.c")
    assert not matches(matchers.text("*/b.c", before="x://"), "x://a/bxc")


WIDE = [
    "/a/b",
    "//a/b",
    "/a//b",
    "/a;v/b",
    "/a/b;v",
    "/a%2fb",
    "/a%5Cb",
    "/a\\b",
    "/;/a/b",
    "/a%3bv/b",
    "%2Fa/b",
    "/A/b",
    "/a/B",
]


@pytest.mark.parametrize("path", WIDE)
def test_a_wide_match_covers_every_spelling_of_a_path(path):
    assert matches(matchers.path("/a/b", wide=True).path, path)
    assert matches(matchers.path("/a/*", wide=True).path, path)
    assert matches(matchers.path("*/b", wide=True).path, path)
    assert matches(matchers.path("/{*}/b", wide=True).path, path)
    assert matches(matchers.path("/a/b", wide=False).path, path) == (path == "/a/b")


@pytest.mark.parametrize("path", ["/a/bc", "/xa/b", "/a/b/c", "/a/b/", "/ab", "/a%20/b"])
def test_a_wide_match_does_not_match_other_paths(path):
    assert not matches(matchers.path("/a/b", wide=True).path, path)


@pytest.mark.parametrize(
    "path", ["/a/..%2fb", "/a%2f..", "/..;x/b", "/.;/", "/a/%2e%2e%2fb", "/..", "/a/./b", "..%5ca"]
)
def test_disguised_dot_segments_match(path):
    assert re.fullmatch(matchers.DISGUISED_DOTS.replace(r"\C", "."), path)


@pytest.mark.parametrize("path", ["/", "/a.b", "/a/...", "/.well-known/x", "/a..b/c", "/a/..b", "/a..", "/a%2fb.c"])
def test_other_dots_do_not_match(path):
    assert not re.fullmatch(matchers.DISGUISED_DOTS.replace(r"\C", "."), path)


@pytest.mark.parametrize("host", ["A.com:80", "a.com.", "a.com.:80", "a.com:x", "a.com:", "x@a.com", "x:y@a.com.:x"])
def test_a_wide_match_covers_every_spelling_of_a_host(host):
    for value in ("a.com", "*.com", "a.*"):
        assert matches(matchers.host(value, wide=True).string_match, host)
    assert not matches(matchers.host("b.com", wide=True).string_match, host)


@pytest.mark.parametrize("host", ["a.com:80", "A.com.:80", "x@a.com:80"])
def test_a_wide_match_of_a_host_with_a_port_matches_only_that_port(host):
    assert matches(matchers.host("a.com:80", wide=True).string_match, host)
    assert matches(matchers.host("*.com:80", wide=True).string_match, host)
    assert not matches(matchers.host("a.com:81", wide=True).string_match, host)
    assert not matches(matchers.host("a.com:80", wide=True).string_match, "a.com")
    assert matches(matchers.host("[::1]", wide=True).string_match, "[::1]:80")


def test_an_allowed_host_is_matched_exactly():
    assert not matches(matchers.host("a.com", wide=True).string_match, "a.com.b:80")
    assert matchers.host("a.com", wide=False).string_match.exact == "a.com"
    assert matchers.host("*", wide=True).present_match


def test_a_claim_is_a_text_or_a_list():
    found = matchers.claim(("org", "team"), matchers.claimed(("a", "b*")))
    assert [segment.key for segment in found.path] == ["payload", "org", "team"]
    in_list, alone = found.value.or_match.value_matchers
    assert in_list.list_match.one_of == alone
    assert [each.string_match.exact or each.string_match.prefix for each in alone.or_match.value_matchers] == ["a", "b"]


def test_ranges_are_networks():
    found = matchers.address_range("10.1.2.3/8")
    assert (found.address_prefix, found.prefix_len.value) == ("10.0.0.0", 8)
    assert matchers.address_range("::1").prefix_len.value == 128


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
VALUES = st.lists(
    TEXT | st.sampled_from(["*", "(*", "*)", "[a]", "[]", "/{*}/a", "\\", "a\nb"]), min_size=1, max_size=2
)
PORT_VALUES, BLOCKS = st.just(["80"]), st.sampled_from([["10.0.0.0/8"], ["::/0"], ["1.2.3.4"]])
SOURCE = st.fixed_dictionaries(
    {
        "principals": VALUES,
        "namespaces": VALUES,
        "requestPrincipals": VALUES,
        "ipBlocks": BLOCKS,
        "notPrincipals": VALUES,
    }
)
OPERATION = st.fixed_dictionaries(
    {"hosts": VALUES, "methods": VALUES, "paths": VALUES, "notPaths": VALUES, "ports": PORT_VALUES, "notHosts": VALUES}
)
WHEN = st.fixed_dictionaries(
    {
        "key": st.sampled_from(
            ["request.headers[x-a-b-c-d-e-f]", "request.headers[:path]", "request.auth.claims[a b][c]",
             "connection.sni", "experimental.envoy.filters.http.x[y]", "request.auth.principal", "source.namespace"]
        ),
        "values": VALUES,
        "notValues": VALUES,
    }
)  # fmt: skip
SPEC = st.fixed_dictionaries(
    {
        "action": st.sampled_from(["ALLOW", "DENY", "AUDIT"]),
        "rules": st.just([]).flatmap(
            lambda _: st.lists(
                st.builds(
                    lambda source, operation, when: {
                        "from": [{"source": source}],
                        "to": [{"operation": operation}],
                        "when": [when],
                    },
                    SOURCE,
                    OPERATION,
                    WHEN,
                ),
                min_size=1,
                max_size=2,
            )
        ),
    }
)


@settings(max_examples=5, deadline=None)
@given(st.lists(SPEC, min_size=20, max_size=20))
async def test_envoy_accepts_every_policy_that_the_reader_accepts(specs):
    original = document(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p, namespace: shop}\nspec: {}"
    )
    policies = []
    for number, spec in enumerate(specs):
        key = ObjectKey("AuthorizationPolicy", "shop", f"p{number}")
        parsed = parse(Document(key, original.api_version, dict(original.body) | {"spec": spec}, "a.yaml", "/x", 1, {}))
        policies += parsed.values
    ports = (InboundPort(8080, Protocol.HTTP), InboundPort(7000, Protocol.TCP))
    view = GroupView(ProxyKind.SIDECAR, ports, OutboundPolicy.ALLOW_ANY, Settings(), authorization=tuple(policies))
    assert await validate(listeners=[Listener.FromString(virtual_inbound(view).body)]) == []
    assert policies
