from tools.source_text import code, prose

SOURCE = '''\
"""A module."""

name = "one word: \\" # no comment"  # a comment
short = 'word'
text = f"{name} and 'quotes'"
'''


def test_comments_and_strings_of_several_words_are_prose():
    texts = [text.strip() for _, text in prose(SOURCE)]
    assert texts == ["A module.", 'one word: \\" # no comment', "a comment", "{name} and 'quotes'"]


def test_offsets_are_those_of_the_source():
    for start, text in prose(SOURCE):
        assert SOURCE[start : start + len(text)].strip("\"'# ") == text.strip("\"'# ")


def test_adjacent_literals_are_one_string_and_offsets_stay():
    source = 'say(\n    "a proxy is "\n    f"told {name}",\n    "another text",\n)\n# one comment\n# another\n'
    texts = [text for _, text in prose(source)]
    assert [" ".join(text.split()) for text in texts] == [
        "a proxy is told {name}",
        "another text",
        "one comment",
        "another",
    ]
    start, text = next(prose(source))
    assert source[start + text.index("told") :].startswith("told {name}")


def test_code_is_the_rest():
    assert code(SOURCE).split() == ["name", "=", "short", "=", "text", "=", "f"]
