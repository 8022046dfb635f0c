"""New text is plain; old text is counted, and the counts only shrink."""

import json

import pytest
from tools.plain_english import BASELINE, RULES, VARIABLES, main, matches, raised

from tools import plain_english


class Tree:
    def __init__(self, root):
        self.root = root
        (root / "tools").mkdir()
        self.baseline({})

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def baseline(self, counts):
        (self.root / BASELINE).write_text(json.dumps(counts))

    def counts(self):
        return json.loads((self.root / BASELINE).read_text())

    def words(self, text, path="src/weft/one.py"):
        self.write(path, text)
        return [(match.line, match.words) for match in matches(self.root / path, self.root)]


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_the_repository_has_no_more_than_its_baseline():
    assert main([]) == 0, "see the lines above; `python -m tools.plain_english --list FILE` shows them again"


def test_comments_and_strings_are_read_and_code_is_not(tree):
    text = '"""A mesh."""\nnobody = heard = 1  # nobody answers\nlog.info("it was told twice")\nkey = "nobody"\n'
    assert tree.words(text) == [(2, "nobody"), (3, "was told")]


def test_a_match_may_be_broken_over_two_lines(tree):
    assert tree.words('"""A mesh\n\nthat is\ntold later."""\n') == [(3, "is told")]


def test_a_match_may_be_broken_over_two_literals(tree):
    assert tree.words('fail(\n    "a proxy that is "\n    f"told {name}"\n)\n') == [(2, "is told")]


def test_pages_are_read_but_for_code(tree):
    text = "# Page\n\nA relay, whoever starts it.\n\n```sh\nnobody\n```\n\nThe user `nobody` and whom.\n"
    assert tree.words(text, "docs/page.md") == [(3, "whoever"), (9, "whom")]


@pytest.mark.parametrize(
    "text",
    [
        "Of one value.",
        "Reads a page. Of those, the first.",
        "nobody answers",
        "the proxy of whom",
        "for those who call",
        "Who comes in is a proxy.",
        "the listener that who calls it meets",
        "an agent is told twice",
        "a status that tells of errors",
        "what the agent has heard",
        "the authorizer is asked first",
        "a rule that says nothing here",
        "the port of one that listens",
        "Say of plaintext between proxies that the oldest Service decides",
        "No one answers",
        "Tells its agents about a change.",
        "Reads a page. Asks the control plane for it.",
        "Says whether a port is open.",
        "Hears about changes.",
        "The proxy says 403",
        "what the control plane tells its proxies",
        "Envoy asks on demand",
        "every agent asks once",
        "tell it which mesh to use",
        "say which",
    ],
)
def test_dialect_is_found(tree, text):
    assert tree.words(f'"""{text}"""\n')
    assert tree.words(f"x = 1  # {text}\n")
    assert tree.words(f"# Page\n\n{text}\n", "docs/page.md")


@pytest.mark.parametrize(
    "text",
    [
        "Of course it waits.",
        "The certificate of a gateway.",
        "A person who calls support.",
        "An allowlist of users who are admitted",
        "Which identities may call.",
        "two clusters are told apart by name",
        "the certificate is asked for once",
        "what the page says",
        "the port that one service has",
        "the first of several",
        "Asks the user for confirmation.",
        "The control plane cannot tell two clusters apart",
        "the client asks for a certificate",
        "proxies cannot tell their connections apart",
    ],
)
def test_plain_english_is_not(tree, text):
    assert tree.words(f'"""{text}"""\n') == []
    assert tree.words(f"# Page\n\n{text}\n", "docs/page.md") == []


def test_a_new_match_fails_with_its_line_its_words_and_what_to_write(tree, capsys):
    tree.write("src/weft/one.py", "# a relay\n# nobody answers\n")
    assert main([], tree.root) == 1
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("src/weft/one.py:2: `nobody` (who, for a program): name it: ")
    assert second == "src/weft/one.py: 1 matches, but the baseline allows 0"


def test_as_many_as_before_pass_and_one_more_does_not(tree):
    tree.baseline({"src/weft/one.py": 1})
    tree.write("src/weft/one.py", "# nobody answers\n")
    assert main([], tree.root) == 0
    tree.write("src/weft/one.py", "# nobody answers\n# somebody calls\n")
    assert main([], tree.root) == 1


def test_an_update_lowers_counts_and_refuses_to_raise_one(tree):
    tree.baseline({"src/weft/one.py": 2, "src/weft/two.py": 1})
    tree.write("src/weft/one.py", "# nobody answers\n")
    tree.write("src/weft/two.py", "# a relay\n")
    assert main(["--update"], tree.root) == 0
    assert tree.counts() == {"src/weft/one.py": 1}
    tree.write("src/weft/two.py", "# whoever\n")
    assert main(["--update"], tree.root) == 1
    assert tree.counts() == {"src/weft/one.py": 1}


def test_a_moved_file_takes_its_count_along_with_an_update(tree, capsys):
    tree.baseline({"src/weft/old.py": 2})
    tree.write("src/weft/new.py", "# nobody answers\n# whoever\n")
    assert main([], tree.root) == 1
    assert "files were moved: run" in capsys.readouterr().out
    assert main(["--update"], tree.root) == 0
    assert tree.counts() == {"src/weft/new.py": 2}


def test_new_files_have_no_more_than_files_that_are_gone_had():
    assert raised({"new": 2}, {"old": 2}) == []
    assert raised({"new": 2, "newer": 1}, {"old": 2}) == ["new", "newer"]
    assert raised({"old": 1, "new": 1}, {"old": 2}) == ["new"]


def test_the_number_of_variables_named_by_a_verb_only_shrinks(tree, capsys):
    tree.baseline({VARIABLES: 2})
    tree.write("src/weft/one.py", "found = 1\nfor made in ():\n    held: int = 1\n")
    assert main([], tree.root) == main(["--update"], tree.root) == 1
    assert f"3 {VARIABLES}, but the baseline allows 2" in capsys.readouterr().out
    tree.write("src/weft/one.py", "found = 1\n")
    assert main([], tree.root) == 0
    assert main(["--update"], tree.root) == 0
    assert tree.counts() == {VARIABLES: 1}


def test_generated_pages_are_read_where_they_come_from(tree):
    tree.write("docs/reference/checks.md", "# Checks\n\nGenerated from the code; do not edit.\n\nnobody\n")
    assert main([], tree.root) == 0


def test_lists_and_reports(tree, capsys):
    tree.write("src/weft/xds/one.py", "# nobody answers\nfound = 1\n")
    tree.write("README.md", "whom\n")
    assert main(["--list", "src/weft/xds"], tree.root) == 0
    assert capsys.readouterr().out.startswith("src/weft/xds/one.py:1: `nobody`")
    assert main(["--report"], tree.root) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "1 README.md 1 src/weft/xds 2 in all" in out
    assert "1 variables named found" in out


def test_every_rule_has_a_replacement():
    assert all(rule.name and rule.instead for rule in RULES)
    assert plain_english.ROOT.joinpath(BASELINE).exists()
