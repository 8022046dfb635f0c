"""Commands that may still change."""


def test_it_lists_its_commands(weft):
    done = weft("x", "--help")
    assert done.returncode == 0
    assert "precheck" in done.stdout


def test_istioctls_long_name_works_too(weft):
    done = weft("experimental", "precheck", "--help")
    assert done.returncode == 0 and "Usage: weft experimental precheck" in done.stdout
