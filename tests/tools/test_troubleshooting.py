"""The page is up to date with the broken meshes, and each of these is complete."""

import pytest
from tools.troubleshooting import MESHES, PAGE, broken, page, read

EVERY = [each for kind in ("mesh", "files", "running", "kubernetes") for each in broken(kind)]


def test_the_page_is_up_to_date_with_the_broken_meshes():
    assert PAGE.read_text() == page(), "run: make reference"
    assert all(f"| {each.what} |" in page() for each in EVERY)


def test_there_are_as_many_as_were_promised_and_most_point_at_a_line():
    assert len(EVERY) >= 50
    assert len({each.name for each in EVERY}) == len(EVERY)
    pointing = [
        each for each in EVERY if any(mark in words for mark in each.marks for t in each.typed for words in t.words)
    ]
    assert len(pointing) >= 35


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_every_mark_is_expected_in_an_output(case):
    asked = " ".join(words for typed in case.typed for words in typed.words)
    assert all(mark in asked for mark in case.marks), case.marks


def test_an_output_is_matched_by_its_words_and_its_line():
    (case,) = [each for each in EVERY if each.name == "host-typo"]
    line = case.marks["HERE"]
    pattern = case.pattern("HERE: VirtualService …[WFT0104]")
    assert pattern.search(f"/tmp/x/host-typo.yaml:{line}: VirtualService shop/typo: warning [WFT0104]: no")
    assert not pattern.search(f"/tmp/x/host-typo.yaml:{line}0: VirtualService shop/typo: warning [WFT0104]: no")
    assert not pattern.search(f"/tmp/x/host-typo.yaml:{line}: DestinationRule shop/typo: warning [WFT0104]: no")


def test_an_invalid_header_is_rejected(tmp_path):
    good = (MESHES / "mesh" / "host-typo.yaml").read_text()
    for before, after in (("# under: A call", "# under: A cell"), ("# seen:", "# sene:"), ("# $ ", "# ")):
        (tmp_path / "case.yaml").write_text(good.replace(before, after))
        with pytest.raises(ValueError, match=r"case\.yaml"):
            read(tmp_path / "case.yaml")
