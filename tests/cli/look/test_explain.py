import json
from pathlib import Path

import pytest

from cli.files.test_test import SERVICE

CASES = Path(__file__).parents[2] / "analyze" / "cases"


@pytest.mark.root
def test_queries_a_running_mesh(weft, mesh):
    done = weft("explain", "talker", "--to", "http://talker/", "--mesh", mesh, "-o", "json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["request"]["host"] == "talker"
    assert said["outcomes"][0]["verdict"]["why"] == "talker does not resolve"


def test_files_with_refused_objects_are_explained_without_them(weft, tmp_path):
    broken = SERVICE.split("---")[0].replace("name: web,", "name: broken,").replace("port: 80,", "port: eighty,")
    (tmp_path / "web.yaml").write_text(SERVICE + "---" + broken)
    done = weft("explain", "web", "--to", "http://web/", "-f", tmp_path)
    assert done.returncode == 0 and "→ delivered" in done.stdout, done.stderr
    assert "error [WFT0001]" in done.stderr and "warning: an error in the given files" in done.stderr


def test_a_name_in_two_namespaces_is_an_ambiguous_command_line(weft, tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE + "---" + SERVICE.replace("shop", "bank"))
    done = weft("explain", "web", "--to", "http://web/", "-f", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: `web` is in several namespaces: bank, shop\nhint: choose one: bank/web, or shop/web\n"
    assert weft("explain", "bank/web", "--to", "http://web/", "-f", tmp_path).returncode == 0


ROUTES = """
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web]
  http:
  - match: [{sourceNamespace: nowhere}]
    route: [{destination: {host: web}}]
  - match: [{uri: {prefix: /new}}]
    route: [{destination: {host: web, subset: v9}}]
  - match: [{uri: {prefix: /}}]
    route: [{destination: {host: web}}]
  - match: [{uri: {prefix: /late}}]
    route: [{destination: {host: web}}]
  tcp:
  - route: [{destination: {host: nobody}}]
"""


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("/", ["19 WFT0119", "25 WFT0111"]),  # a match that no request meets; a route after one that takes all requests
        ("/new", ["19 WFT0119", "22 WFT0107"]),
    ],
)
def test_only_problems_of_the_taken_route_are_printed(weft, tmp_path, path, lines):
    (tmp_path / "web.yaml").write_text(SERVICE + ROUTES)
    done = weft("explain", "web", "--to", f"http://web{path}", "-f", tmp_path, "-o", "json")
    assert done.returncode == 0, done.stderr
    told = [f"{each['where']['line']} {each['code']}" for each in json.loads(done.stdout)["problems"]]
    assert sorted(told) == lines


@pytest.mark.parametrize(("case", "caller"), [("WFT0224", "web"), ("WFT0224-gateway", "edge")])
def test_tls_in_tls_is_explained_with_the_object_that_requires_it(weft, tmp_path, case, caller):
    """The behaviour on the wire is tested in tests/e2e/test_gateway_api_gateways.py."""
    (tmp_path / "mesh.yaml").write_text((CASES / f"{case}.yaml").read_text() + "---" + SERVICE)
    done = weft("explain", caller, "--to", "https://pay.example.com/", "-f", tmp_path)
    assert "gets TLS inside TLS  [" in done.stdout and "DestinationRule shop/pay" in done.stdout
    assert "\n→ closed: the caller's TLS handshake fails" in done.stdout
    assert "[WFT0224]" in done.stderr
