import json

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
    assert done.stdout.startswith("sidecar:shop/web (web-0.shop)\n  changed listener virtualInbound\n")
    assert "\nweb GET http://web/  (" in done.stdout
    assert "  - delivered: outbound|80||web.shop.svc.cluster.local" in done.stdout
    assert "  + denied 403: outbound|80||web.shop.svc.cluster.local" in done.stdout
    assert "1 groups of proxies change, 0 do not; 2 of 2 requests end otherwise" in done.stderr
    said = json.loads(weft("diff", "-f", change, "--against", base, "-o", "json").stdout)
    assert [each["name"] for each in said["proxies"][0]["resources"]] == ["virtualInbound"]


def test_the_same_again_changes_nothing(weft, tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE)
    done = weft("diff", "-f", tmp_path / "web.yaml", "--against", tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
