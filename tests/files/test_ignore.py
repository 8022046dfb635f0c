import pytest

from weft.files.ignore import parse


@pytest.mark.parametrize(
    ("pattern", "path", "excluded"),
    [
        ("a.yaml", "a.yaml", True),
        ("a.yaml", "sub/a.yaml", True),
        ("a.yaml", "b.yaml", False),
        ("/a.yaml", "a.yaml", True),
        ("/a.yaml", "sub/a.yaml", False),
        ("sub/a.yaml", "sub/a.yaml", True),
        ("sub/a.yaml", "other/sub/a.yaml", False),
        ("*.json", "sub/x.json", True),
        ("sub/*.yaml", "sub/a.yaml", True),
        ("sub/*.yaml", "sub/more/a.yaml", False),
        ("sub/**/a.yaml", "sub/a.yaml", True),
        ("sub/**/a.yaml", "sub/b/c/a.yaml", True),
        ("**/test/*", "a/b/test/x.yaml", True),
        ("sub/**", "sub/a/b.yaml", True),
        ("sub/**", "sub", False),
        ("values-[ab].yaml", "values-a.yaml", True),
        ("values-[!ab].yaml", "values-a.yaml", False),
        ("?.yaml", "ab.yaml", False),
        ("\\#a.yaml", "#a.yaml", True),
        ("# a.yaml", "a.yaml", False),
        ("[", "[", True),
        ("", "a", False),
        ("/", "a", False),
    ],
)
def test_patterns_match_as_in_a_gitignore(pattern, path, excluded):
    assert parse(pattern).excludes(path, directory=False) is excluded


def test_a_slash_at_the_end_matches_only_directories():
    ignored = parse("charts/\n")
    assert ignored.excludes("charts", directory=True)
    assert ignored.excludes("deep/charts", directory=True)
    assert not ignored.excludes("charts", directory=False)


def test_the_last_pattern_that_matches_decides():
    ignored = parse("*.json\n!mesh.json\n")
    assert ignored.excludes("a.json", directory=False)
    assert not ignored.excludes("mesh.json", directory=False)


def test_many_wildcards_take_no_more_than_linear_time():
    assert not parse("**/" * 500 + "x").excludes("a/" * 500 + "b", directory=False)
    assert not parse("*a" * 100 + "b").excludes("a" * 250, directory=False)
