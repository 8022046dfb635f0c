import json
import os

import pytest

from weft.cli import history


def change(name, what="changed", **where):
    return {"object": {"kind": "Service", "namespace": "shop", "name": name}, "what": what, "where": where}


def test_a_moment_tells_its_objects_with_their_places_and_how_many_more():
    assert history._told([change("a", file="shop.yaml", line=3)]) == "Service shop/a changed (shop.yaml:3)"
    many = [change(name) for name in "abcde"]
    assert history._told(many).endswith("Service shop/c changed, and 2 more")


def test_who_only_answers_is_left_out_unless_asked_for():
    pod = {"object": {"kind": "Pod", "namespace": "shop", "name": "a"}, "what": "added", "where": {}}
    assert history._of_endpoints({"changes": [pod]})
    assert not history._of_endpoints({"changes": [pod, change("a")]})


@pytest.mark.root
def test_a_mesh_in_which_nothing_has_changed_says_so(weft, mesh_directory):
    mesh = f"unchanged-{os.getpid()}"
    assert weft("up", mesh_directory, "--name", mesh, "--detach").returncode == 0
    try:
        done = weft("history", "--mesh", mesh)
        assert (done.returncode, done.stdout) == (0, "")
        assert "nothing has changed since" in done.stderr
        assert json.loads(weft("history", "--mesh", mesh, "-o", "json").stdout)["moments"] == []
    finally:
        weft("down", mesh)
