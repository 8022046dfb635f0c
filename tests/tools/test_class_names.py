"""Public class names exist once, and the glossary's words are those of the code."""

import pytest
from tools.class_names import duplicated, glossary

from tools import class_names

GLOSSARY = """
# Architecture

| word | means |
|---|---|
| other | another table |

## Words

| word | means |
|---|---|
| route | where a request goes, as a VirtualService states it |
| trust domain | the authority part of `spiffe://TRUST_DOMAIN/ns` |

## Next
"""
CODE = 'class VirtualService: ...\nclass Routes: ...\ntrust_domain = "spiffe://"; ns = 1\n'


@pytest.fixture
def tree(tmp_path):
    def write(architecture=GLOSSARY, **sources):
        package = tmp_path / "src" / "weft"
        package.mkdir(parents=True, exist_ok=True)
        for name, text in sources.items():
            (package / f"{name}.py").write_text(text)
        (tmp_path / "ARCHITECTURE.md").write_text(architecture)
        return tmp_path

    return write


def test_the_repository_passes():
    assert class_names.main() == 0


def test_a_name_of_two_classes_is_refused_with_both_places(tree):
    root = tree(one="class Place:\n    x = 1\n", two="class Place(Base): ...\n")
    (problem,) = duplicated(root)
    assert problem.startswith("class Place: defined in src/weft/one.py, src/weft/two.py;")


def test_private_classes_inner_classes_and_text_do_not_count(tree):
    text = '"""\nclass Place: in a docstring\n"""\nclass _Step: ...\nclass Owner:\n    class Inner: ...\n'
    assert duplicated(tree(one=text, two=text.replace("Owner", "Other"))) == []


def test_a_glossary_of_words_that_the_code_has_is_true(tree):
    assert glossary(tree(one=CODE)) == []


def test_a_word_that_no_identifier_has_is_refused(tree):
    (problem,) = glossary(tree(one=CODE.replace("class Routes", "class Paths") + '"a route"\n'))
    assert problem.startswith("ARCHITECTURE.md: no identifier in src/weft has `route` in it")


def test_a_word_that_is_defined_twice_is_refused(tree):
    twice = GLOSSARY.replace("\n## Next", "| route | another meaning |\n\n## Next")
    assert glossary(tree(twice, one=CODE)) == ["ARCHITECTURE.md: `route` is defined 2 times"]


def test_a_name_that_is_not_in_the_code_is_refused(tree):
    gone = GLOSSARY.replace("VirtualService", "HostRoute")
    assert glossary(tree(gone, one=CODE)) == [
        "ARCHITECTURE.md: the definition of `route` uses HostRoute, which is not in src/weft",
    ]


def test_a_page_without_the_table_is_refused(tree):
    assert glossary(tree("# Architecture\n", one=CODE)) == ["ARCHITECTURE.md: no table under `## Words`"]
