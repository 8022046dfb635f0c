"""Commands that may still change."""


def test_it_lists_its_commands(weft):
    done = weft("x", "--help")
    assert done.returncode == 0
    assert "precheck" in done.stdout
