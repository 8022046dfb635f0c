import json

SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {command: [sleep, "1"], ports: [{name: http, port: 8080}]}
"""
TESTS = """
apiVersion: weft.dev/v1alpha1
kind: RequestTest
metadata: {name: web, namespace: shop}
spec:
  requests:
  - {from: web, to: http://web/, expect: allowed}
"""


def test_all_as_expected_is_well(weft, tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE)
    (tmp_path / "tests.yaml").write_text(TESTS)
    done = weft("test", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok   web GET http://web/  (")
    assert weft("test", cwd=tmp_path).stdout == "ok   web GET http://web/  (./tests.yaml:7)\n"
    assert "1 request, 0 not as expected" in done.stderr


def test_what_is_not_as_expected_fails_with_its_place_and_why(weft, tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE)
    (tmp_path / "tests.yaml").write_text(TESTS.replace("allowed", "denied"))
    done = weft("test", tmp_path, "-v")
    assert done.returncode == 1
    assert "tests.yaml:7)" in done.stdout
    assert "expected to be denied, but it is delivered" in done.stdout
    assert "→ delivered: the call reaches web-0.shop" in done.stdout
    (said,) = json.loads(weft("test", tmp_path, "-o", "json").stdout)
    assert (said["request"], len(said["wrong"])) == ("web GET http://web/", 1)


def test_rejected_objects_are_reported_and_the_others_are_used(weft, tmp_path):
    broken = SERVICE.split("---")[0].replace("name: web,", "name: broken,").replace("port: 80,", "port: eighty,")
    (tmp_path / "web.yaml").write_text(SERVICE + "---" + broken)
    (tmp_path / "tests.yaml").write_text(TESTS)
    done = weft("test", tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("ok   web GET http://web/")
    assert "web.yaml:" in done.stderr and "error [WFT0001]" in done.stderr
    assert "warning: an error in the given files: rejected objects are left out" in done.stderr


def test_errors_in_a_test_or_a_file_are_reported_and_no_request_is_tried(weft, tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE)
    (tmp_path / "tests.yaml").write_text(TESTS.replace("expect: allowed", "expect: maybe"))
    done = weft("test", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "tests.yaml:7" in done.stderr and "error [WFT0001]" in done.stderr


def test_without_a_test_there_is_nothing_to_do(weft, tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE)
    assert "contain no RequestTest" in weft("test", tmp_path).stderr


def test_a_missing_file_is_a_usage_error(weft, tmp_path):
    done = weft("test", tmp_path / "none.yaml")
    assert done.returncode == 2 and "does not exist" in done.stderr


def test_tests_without_a_mesh_are_an_error(weft, tmp_path):
    (tmp_path / "tests.yaml").write_text(TESTS)
    done = weft("test", tmp_path / "tests.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert weft("test", cwd=tmp_path).returncode == 2
    assert "the given files contain no mesh\nhint: give the YAML of the mesh too: weft test DIRECTORY " in done.stderr


EDGE = """
---
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: edge, namespace: shop, labels: {app: edge}}
spec: {gateway: {}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec: {selector: {app: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [a.example]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: edge, namespace: shop}
spec: {hosts: [a.example], gateways: [edge], http: [{route: [{destination: {host: web}}]}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: edge, namespace: shop}
spec:
  selector: {matchLabels: {app: edge}}
  rules: [{from: [{source: {remoteIpBlocks: [198.51.100.0/24]}}]}]
---
apiVersion: weft.dev/v1alpha1
kind: RequestTest
metadata: {name: edge, namespace: shop}
spec:
  requests:
  - {from: edge, to: http://a.example/, expect: denied}
  - {from: edge, to: http://a.example/, sourceAddress: 198.51.100.7, expect: allowed}
  - {from: web, to: http://web/, sourceAddress: 198.51.100.7, expect: allowed}
"""


def test_only_a_caller_from_outside_may_have_a_source_address(weft, tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE + EDGE)
    lines = weft("test", tmp_path).stdout.splitlines()
    assert [line[:4] for line in lines] == ["ok  ", "ok  ", "FAIL", "    "]
    assert "`198.51.100.7` cannot be set for web: it is not a gateway" in lines[3]
