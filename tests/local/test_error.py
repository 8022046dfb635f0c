from __future__ import annotations

from weft.local.error import LocalError, NoSuchMesh


def test_an_error_has_its_place_text_and_hint():
    error = LocalError("the lock is taken", "weft down shop", where="mesh shop")
    assert str(error) == "mesh shop: error: the lock is taken (hint: weft down shop)"


def test_a_missing_mesh_is_named_with_the_command_that_starts_one():
    assert "no mesh is running (hint: start one with `weft up DIR`)" in str(NoSuchMesh())
    assert "`shop`" in str(NoSuchMesh("shop"))
