import pytest
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from hypothesis import given
from hypothesis import strategies as st

from weft.api.regex import _PROPERTY_NAMES, MOST_STEPS, regex_flaw
from weft.envoy import bootstrap, validate

FINE = [
    r"/items/[0-9]+(/.*)?",
    r"(?i)abc",
    r"a(?i)b",
    r"(?i-s:x)",
    r"\pL+\p{Greek}\P{^Lu}",
    r"(?P<n>x)",
    r"(?<n>x)",
    r"a\z",
    r"[[:alpha:]]",
    r"\Qa(b\E",
    r"\Qab\E{3}",
    r"a{1000}",
    r"(a{10}){100}",
    r"(?:(?:a{10}){10}b?){10}",
    r"[(?=]",
    r"[]a]",
    r"[^]a]",
    r"[\d-z]",
    r"[a-]",
    r"\\1",
    r"\12",
    r"\x{ff}\xff",
    r"\.+",
    r"^*$",
    r"a{,5}",
    r"{",
    r"a*?b{2}?",
    r"é*[ü-é]",
    r"()|",
]
REFUSED = [
    ("", "empty"),
    ("a" * 1025, "longer"),
    ("(", "missing )"),
    (")", "unbalanced )"),
    ("[a", "unterminated"),
    ("a\\", "ends with a backslash"),
    ("*", "nothing to repeat"),
    ("a|*", "nothing to repeat"),
    ("a**", "RE2 has no `**`"),
    ("a{2}{3}", "RE2 has no `}{3}`"),
    ("a++", "possessive"),
    ("a{5,2}", "has a maximum below its minimum"),
    ("a{1001}", "more than 1000"),
    ("(a{1000}){1000}", "multiply to 1000000"),
    (r"((\w{1,10}\.){1,10}x){11}", "multiply to 1100"),
    (r"\pL{1000}" * 100, "too large"),
    ("(?=a)", "look-around"),
    ("(?<!a)b", "look-around"),
    ("(?#a)", "comments"),
    ("(?x)a", "RE2 has no `(?x)`"),
    (r"(a)\1", "back-references"),
    (r"(?P<a>x)(?P=a)", "RE2 has no"),
    (r"a\Z", r"RE2 has no `\Z`"),
    (r"\u1234", r"RE2 has no `\u`"),
    (r"\x{100}", r"RE2 has no `\x{100}`"),
    (r"\N{EM DASH}", r"RE2 has no `\N`"),
    (r"[\b]", r"RE2 has no `\b`"),
    (r"[a-\d]", r"RE2 has no `\d`"),
    ("[z-a]", "bad range `z-a`"),
    ("[[:letter:]]", "RE2 has no `[:letter:]`"),
    (r"\p{Klingon}", r"RE2 has no `\p{Klingon}`"),
    ("(?P<é>a)", "RE2 has no"),
]


@pytest.mark.parametrize("text", FINE)
def test_valid_re2_expressions_are_accepted(text):
    assert regex_flaw(text) == ""


@pytest.mark.parametrize(("text", "what"), REFUSED)
def test_invalid_re2_expressions_are_rejected_with_the_reason(text, what):
    assert what in regex_flaw(text)


async def test_envoy_accepts_all_accepted_expressions():
    assert await _asked(*FINE, *(rf"\p{{{name}}}" for name in sorted(_PROPERTY_NAMES))) == []


@pytest.mark.parametrize("text", [text for text, _ in REFUSED[2:]])
async def test_envoy_rejects_all_rejected_expressions(text):
    assert await _asked(text) != []


def test_envoys_own_limit_is_the_one_in_its_bootstrap():
    node = bootstrap.BootstrapNode(name="a", namespace="shop", addresses=("10.0.0.1",))
    told = bootstrap.render(bootstrap.Bootstrap(node=node, xds=bootstrap.Unix("/x")))
    assert f'"re2.max_program_size.error_level":{MOST_STEPS}' in told


@given(st.text(max_size=50))
def test_no_text_breaks_the_reader(text):
    regex_flaw(text)


async def _asked(*expressions):
    """Envoy's errors for routes with these expressions."""
    routes = RouteConfiguration(name="routes")
    host = routes.virtual_hosts.add(name="all", domains=["*"])
    for expression in expressions:
        route = host.routes.add()
        route.match.safe_regex.regex = expression
        route.direct_response.status = 200
    return await validate.validate(routes=[routes])
