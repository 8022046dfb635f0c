import pytest

from weft.explain.decision import Unsure
from weft.explain.regex import matches, replaced


@pytest.mark.parametrize(
    ("expression", "text", "expected"),
    [
        ("/a", "/ab", False),
        ("/a$", "/a", True),
        ("/a$", "/a\n", False),
        ("a{,2}", "a{,2}", True),
        ("a{1,2}", "aa", True),
        ("[[:alpha:]]+", "abC", True),
        ("[[:alpha:]_]+", "a_1", False),
        (r"\d+", "٣", False),
        (r"\w+", "é", False),
        (r"[\d.]+", "1.2", True),
        (r"[^\s]+", "a b", False),
        (r"\Qa.b\E+", "a.bb", True),
        (r"\Qa.b\E", "axb", False),
        (r"\x{e9}\x41", "éA", True),
        (r"(?i)ABC", "abc", True),
        (r"(?is)a.b", "A\nB", True),
        (r"a.b", "a\nb", False),
        (r"a\C*b", "a\n%b", True),
        (r"(?<x>a)(?P<y>b)", "ab", True),
        (r"(?i:a)b", "Ab", True),
        (r"\bab\b\z", "ab", True),
        (r"[]a]+", "]a", True),
        (r"[a[]+", "[a", True),
        (r"\.", ".", True),
        (r"\v", "\x0b", True),
    ],
)
def test_expressions_match_as_in_re2(expression, text, expected):
    assert matches(expression, text) is expected


@pytest.mark.parametrize("expression", [r"\pN", "a(?i)b", "(?U)a", r"[[:^alpha:]]", r"[\W]", r"\1", "[a", r"[\b]"])
def test_an_unsupported_expression_is_unknown(expression):
    with pytest.raises(Unsure, match=r"evaluated|end"):
        matches(expression, "a")


def test_every_match_is_replaced_as_re2_does_it():
    assert replaced(r"/(\w+)/(\w*)", r"/\2/\1", "/a/b") == "/b/a"
    assert replaced("b*", "-", "abc") == "-a-c-"
    assert replaced("(a)|b", r"\1\\", "ab") == "a\\\\"
