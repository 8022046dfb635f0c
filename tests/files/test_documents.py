import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.api.parse import parse
from weft.files.documents import MOST_BYTES, read_documents
from weft.model.names import ObjectKey

GOOD = "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop}\nspec: {ports: [{port: 80}]}\n"


def read(text, file="shop.yaml"):
    return read_documents(text.encode() if isinstance(text, str) else text, file, "/meshes")


def names(reading):
    return [document.key.name for document in reading.documents]


def told(reading):
    return [
        f"{problem.where.line} {problem.what}" + (f" ({problem.hint})" if problem.hint else "")
        for problem in reading.problems
    ]


def test_reads_a_stream_of_documents_with_their_lines():
    reading = read(
        "# head\n---\n" + GOOD % "a" + "---\n# Source: chart\n" + GOOD % "b" + "...\n---\n\n---\n" + GOOD % "c"
    )
    assert names(reading) == ["a", "b", "c"]
    assert [document.line for document in reading.documents] == [3, 9, 17]
    assert reading.documents[1].where(("spec", "ports", 0, "port")).line == 12
    assert reading.documents[0].file == "shop.yaml"
    assert reading.documents[0].directory == "/meshes"
    assert reading.problems == ()
    assert not reading.unidentified


def test_dashes_inside_a_text_do_not_split():
    reading = read("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: |\n    ---\n    b\n  y: a---b\n")
    assert reading.documents[0].body["data"]["x"] == "---\nb\n"


def test_directives_windows_line_ends_and_byte_order_marks():
    assert names(read("%YAML 1.1\n---\n" + GOOD % "a")) == ["a"]
    assert names(read(("\ufeff" + GOOD % "a" + "---\n" + GOOD % "b").replace("\n", "\r\n"))) == ["a", "b"]
    assert names(read((GOOD % "a").encode("utf-16"))) == ["a"]


def test_an_empty_file_is_fine():
    for text in ("", "\n\n", "# only a comment\n", "---\n---\n"):
        assert read(text) == read("")
        assert read(text).problems == ()


def test_a_broken_document_leaves_the_others():
    reading = read(GOOD % "a" + "---\nkind: [\n---\n" + GOOD % "b")
    assert names(reading) == ["a", "b"]
    assert reading.unidentified
    assert len(reading.problems) == 1
    assert reading.problems[0].where.line in (6, 7)
    assert "this is not YAML" in reading.problems[0].what


def test_a_duplicate_key_breaks_only_its_own_object():
    reading = read(GOOD % "a" + "metadata: {name: a}\n---\n" + GOOD % "b")
    assert names(reading) == ["b"]
    assert [(each.key, each.usable) for each in reading.broken] == [(ObjectKey("Service", "default", "a"), False)]
    assert not reading.unidentified
    assert told(reading) == [
        "5 `metadata` is set twice, here and on line 3 (keep only one of the two: YAML would silently use the last value)"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: Service\nmetadata: {name: a}\n", "1 `apiVersion` is missing (for example networking.istio.io/v1)"),
        (
            "apiversion: v1\nkind: Service\nmetadata: {name: a}\n",
            "1 `apiVersion` is missing (did you mean `apiVersion` instead of `apiversion`?)",
        ),
        ("apiVersion: v1\nmetadata: {name: a}\n", "1 `kind` is missing (for example VirtualService)"),
        ("apiVersion: v1\nkind: Service\n", "1 `metadata` is missing (every object needs this field)"),
        (
            "apiVersion: v1\nkind: Service\nmetadata:\n  namespace: a\n",
            "3 `metadata.name` is missing (every object needs this field)",
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: 5\n",
            '4 `metadata.name` must be text (put it in quotes: "5")',
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata: x\n",
            "3 `metadata` must be a mapping (write `metadata: {name: …}`)",
        ),
        ("hello\n", "1 this is not an object (an object has `apiVersion`, `kind` and `metadata`)"),
        ("- a\n", "1 this is not an object (an object has `apiVersion`, `kind` and `metadata`)"),
        ("a:\n\tb: 1\n", "2 a tab is used for indentation (YAML indents with spaces only)"),
    ],
)
def test_reports_what_keeps_an_object_from_being_identified(text, problem):
    reading = read(text)
    assert told(reading) == [problem]
    assert reading.unidentified
    assert reading.documents == ()


def test_the_same_object_twice_in_a_file_the_first_holds():
    reading = read(GOOD % "a" + "---\n" + (GOOD % "a").replace("80", "81"))
    assert reading.documents[0].body["spec"]["ports"] == [{"port": 80}]
    assert told(reading) == ["6 Service shop/a is defined twice in this file; the one on line 1 is used (remove one)"]


def test_namespaces_default_and_cluster_scoped_kinds_have_none():
    reading = read(
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Namespace\nmetadata: "
        "{name: b}\n"
    )
    assert [document.key for document in reading.documents] == [
        ObjectKey("Service", "default", "a"),
        ObjectKey("Namespace", "", "b"),
    ]


def test_lists_are_expanded_with_lines():
    reading = read(
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata:\n    name: a\n"
        "- apiVersion: v1\n  kind: Service\n  metadata: {name: b}\n- 5\n"
    )
    assert names(reading) == ["a", "b"]
    assert reading.documents[0].where(("metadata", "name")).line == 7
    assert reading.documents[1].line == 8
    assert told(reading) == ["11 this is not an object (an object has `apiVersion`, `kind` and `metadata`)"]


@pytest.mark.parametrize("half", ["\\ud800", "\\udc00", "\\ud83d\\ud83d\\ude00", "\\uDBFFx"])
def test_half_of_a_surrogate_pair_in_json_is_a_problem(half):
    text = f'{{"apiVersion": "v1", "kind": "Service",\n"x": "\\ud83d\\ude00",\n"metadata": {{"name": "{half}"}}}}'
    reading = read(text, "a.json")
    assert told(reading)[0].startswith("3 this is not Unicode text: it contains half of a surrogate pair")
    assert reading.unidentified
    assert not reading.documents


def test_json_has_lines_too():
    text = json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "x": "\U0001f600"}}, indent=2)
    assert names(read(text, "a.json")) == ["a"]
    plain = text.replace("\\ud83d\\ude00", "y")
    assert read(plain, "a.json").documents[0].where(("metadata", "name")).line == 5
    assert told(read('{"a": 1,\n}', "a.json"))[0].startswith("2 this is not JSON")


def test_content_that_is_not_text_is_reported_with_its_line():
    assert told(read(b"a: b\n\xff\xff: c\n")) == ["2 this is not UTF-8 text (save the file as UTF-8)"]
    assert "control characters" in told(read(b"a: \x00\x01\n"))[0]


def test_a_huge_file_is_not_read():
    assert told(read(b"#" * (MOST_BYTES + 1))) == ["1 the file is larger than 8 MiB (split it)"]


def test_an_ambiguous_boolean_does_not_reject_the_object():
    reading = read("apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {x: yes}}\n")
    assert names(reading) == ["a"]
    assert reading.problems[0].severity == "warning"
    assert reading.problems[0].where.object == "Namespace a"


def check(reading):
    for problem in reading.problems:
        assert problem.where.line >= 1
        assert problem.where.file
    for document in reading.documents:
        parse(document)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_raising(content):
    check(read_documents(content, "x.yaml"))
    check(read_documents(content, "x.json"))


@given(st.text(alphabet="apiVersion:kndmtl{}[]-\n \t\"'&*|>#.,5", max_size=120))
def test_any_text_is_read_without_raising(text):
    check(read(GOOD % "a" + "---\n" + text))


@given(st.integers(0, 400), st.integers(0, 400), st.text(max_size=5))
def test_a_cut_or_damaged_stream_is_read_without_raising(start, end, junk):
    whole = "---\n".join(GOOD % name for name in "abcd")
    check(read(whole[:start] + junk + whole[end:]))
