"""What the suite says becomes a line for each test, and every image that its manifests name is known by its name."""

import io
import zipfile

from tools.kube import conformance

SAID = """=== RUN   TestConformance
=== RUN   TestConformance/HTTPRouteMatching
=== RUN   TestConformance/HTTPRouteMatching/Simple_request
--- FAIL: TestConformance (93.10s)
    --- PASS: TestConformance/HTTPRouteMatching (3.02s)
        --- PASS: TestConformance/HTTPRouteMatching/Simple_request (1.00s)
    --- FAIL: TestConformance/GatewayModifyListeners (61.70s)
        --- FAIL: TestConformance/GatewayModifyListeners/should_be_able_to_add (60.00s)
    --- SKIP: TestConformance/UDPRoute (0.00s)
FAIL
"""


def test_each_test_that_ran_is_told_once_with_its_time_and_then_their_sum():
    assert list(conformance.results(SAID)) == [
        "PASS  HTTPRouteMatching (3 s)",
        "FAIL  GatewayModifyListeners (62 s)",
        "1 of 2 tests passed, 1 were not run",
    ]


def test_a_suite_that_ended_before_its_tests_passed_none():
    assert list(conformance.results("panic: no cluster\n")) == ["0 of 0 tests passed, 0 were not run"]


def test_images_are_those_that_the_manifests_name_and_each_once():
    manifests = "      - name: app\n        image: example.com/echo-basic:v1\n      - image: 'example.com/dns:v2'\n"
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("base/manifests.yaml", manifests)
        archive.writestr("tests/more.yaml", manifests)
        archive.writestr("README.md", "image: example.com/not-this\n")
    with zipfile.ZipFile(held) as archive:
        assert conformance.image_names(archive) == {"example.com/echo-basic:v1", "example.com/dns:v2"}


def test_the_suite_is_of_the_version_of_the_definitions():
    assert f"{conformance.MODULE} {conformance.gateway_api.VERSION}\n" in conformance._module()


def test_what_is_claimed_of_gateways_and_of_the_mesh_has_the_core_of_its_profiles():
    assert {"Gateway", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "ReferenceGrant"} <= set(
        conformance.RUNS["gateway"].features
    )
    assert {"Mesh", "HTTPRoute", "GRPCRoute"} <= set(conformance.RUNS["mesh"].features)
