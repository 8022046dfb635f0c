import json

import pytest


@pytest.mark.root
def test_a_result_that_never_changed_is_printed_with_its_start(weft, mesh):
    asks = ("bisect", "talker", "--to", "http://talker/", "--mesh", mesh)
    done = weft(*asks)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the request has had this result since 20")
    assert "talker-0" not in done.stdout and "    failed: talker does not resolve" in done.stdout
    assert json.loads(weft(*asks, "-o", "json").stdout)["after"] == ["failed: talker does not resolve"]


@pytest.mark.root
def test_an_unknown_caller_is_an_error(weft, mesh):
    done = weft("bisect", "talkr", "--to", "http://talker/", "--mesh", mesh)
    assert done.returncode == 1
    assert "did you mean `talker`?" in done.stderr


@pytest.mark.root
def test_where_a_caller_from_outside_is_belongs_to_gateways_alone(weft, mesh):
    done = weft("bisect", "talker", "--to", "http://talker/", "--source-address", "198.51.100.7", "--mesh", mesh)
    assert done.returncode == 1
    assert "`198.51.100.7` cannot be set for talker: it is not a gateway" in done.stderr
