import json

import pytest

from cli.test_test_ import SERVICE, TESTS

POLICY = """
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: nobody, namespace: shop}
spec: {}
"""


def test_a_change_is_told_by_proxies_and_by_requests(weft, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    (base / "web.yaml").write_text(SERVICE)
    (base / "tests.yaml").write_text(TESTS)
    change = tmp_path / "change.yaml"
    change.write_text(POLICY)
    done = weft("diff", "-f", change, "--against", base)
    assert done.returncode == 1, done.stderr
    added, rest = done.stdout.split("\n", 1)
    assert added.startswith("added AuthorizationPolicy shop/nobody (") and added.endswith("change.yaml:2)")
    assert rest.startswith("sidecar:shop/web (web-0.shop)\n  changed listener virtualInbound\n")
    assert "\n  by AuthorizationPolicy shop/nobody (" in rest
    assert "\nweb GET http://web/ (" in done.stdout
    assert "  - delivered: outbound|80||web.shop.svc.cluster.local" in done.stdout
    assert "  + denied 403: outbound|80||web.shop.svc.cluster.local" in done.stdout
    assert "1 objects and 1 groups of proxies change, 0 do not; 2 of 2 requests end otherwise" in done.stderr
    said = json.loads(weft("diff", "-f", change, "--against", base, "-o", "json").stdout)
    assert [each["name"] for each in said["proxies"][0]["resources"]] == ["virtualInbound"]


def test_the_same_again_changes_nothing(weft, tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE)
    done = weft("diff", "-f", tmp_path / "web.yaml", "--against", tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say what to compare"),
        (["@-1", "-f", "x.yaml"], "say what to compare"),
        (["@-3", "@-2", "@-1"], "more than can be compared"),
        (["@-1", "--against", "."], "more than can be compared"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_a_usage_error(weft, arguments, said):
    done = weft("diff", *arguments)
    assert done.returncode == 2 and said in done.stderr


def test_trouble_that_prevents_an_answer_is_none(weft, tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE)
    (tmp_path / "bad.yaml").write_text("a: [")
    for arguments in (
        ["-f", tmp_path / "none.yaml", "--against", tmp_path],
        ["-f", tmp_path / "bad.yaml", "--against", tmp_path / "web.yaml"],
        ["-f", tmp_path / "web.yaml", "--mesh", "nobody"],
        ["@-1", "--mesh", "nobody"],
    ):
        done = weft("diff", *arguments)
        assert (done.returncode, done.stdout) == (2, "") and "error: " in done.stderr, arguments


@pytest.mark.root
def test_the_past_of_a_mesh_that_has_none_is_said(weft, mesh):
    done = weft("diff", "@-1", "--mesh", mesh)
    assert done.returncode == 2 and "moment -1 is not remembered" in done.stderr
    done = weft("diff", "@0", "@0", "--mesh", mesh)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "from @0 to @0: 0 objects" in done.stderr
    assert "no traffic is recorded here" in done.stderr
