import json

import pytest


@pytest.mark.root
def test_the_change_after_which_a_request_ended_otherwise_is_told(weft, mesh):
    asks = ("bisect", "talker", "--to", "http://talker/", "--mesh", mesh)
    done = weft(*asks)
    assert done.returncode == 0, done.stderr
    assert "Pod shop/talker-0 added" in done.stdout
    assert "  - there is no workload or pod `talker`" in done.stdout
    assert json.loads(weft(*asks, "-o", "json").stdout)["after"] == ["failed: talker does not resolve"]


@pytest.mark.root
def test_who_is_not_there_cannot_be_asked_about(weft, mesh):
    done = weft("bisect", "talkr", "--to", "http://talker/", "--mesh", mesh)
    assert done.returncode == 1
    assert "did you mean `talker`?" in done.stderr
