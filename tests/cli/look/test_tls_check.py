import click
import pytest

from weft.cli.look import tls_check

ROW = {
    "host": "app.shop",
    "port": 80,
    "subset": "v1",
    "status": "CONFLICT",
    "server": "STRICT",
    "client": "DISABLE",
    "policy": {"object": "PeerAuthentication shop/door", "file": "door.yaml", "line": 3},
    "rule": {"object": "DestinationRule shop/app", "file": "", "line": 0},
    "servers": ["app-0.shop"],
    "why": "they differ",
}


def test_a_host_may_have_a_port():
    assert tls_check._split("app.shop") == ("app.shop", 0)
    assert tls_check._split("app.shop:80") == ("app.shop", 80)
    for wrong in ("app:http", ":80"):
        with pytest.raises(click.exceptions.Exit):
            tls_check._split(wrong)


def test_a_row_reads_as_istioctls():
    assert tls_check._cells(ROW) == ("app.shop:80 (v1)", "CONFLICT", "STRICT", "DISABLE", "door/shop", "app/shop")
    assert tls_check._cells({**ROW, "policy": None, "rule": None})[-2:] == ("-", "-")


def test_a_conflict_names_the_servers_and_the_deciding_objects():
    said = "conflict: app.shop:80: they differ at app-0.shop; by DestinationRule shop/app"
    assert tls_check._explanation(ROW) == f"{said} and PeerAuthentication shop/door (door.yaml:3)"


@pytest.mark.root
def test_a_host_that_is_not_there_is_an_error(weft, mesh):
    done = weft("authn", "tls-check", "nobody", "--mesh", mesh)
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no service `nobody`" in done.stderr
