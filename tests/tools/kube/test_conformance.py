"""The output of the suite becomes a line for each test as it ends, and a summary; every image in its manifests is
known by its name."""

import io
import sys
import zipfile

import pytest
from tools.kube.conformance import Outcome, Result

from tools.kube import conformance

# The output of Go's tests with `-test.v=test2json`.
SAID = """\x16=== RUN   TestConformance
    suite.go:388: 2026-01-01T00:00:00Z: Test Setup: Applying base manifests
\x16=== RUN   TestConformance/HTTPRouteMatching
\x16=== RUN   TestConformance/HTTPRouteMatching/Simple_request
\x16--- PASS: TestConformance/HTTPRouteMatching/Simple_request (1.00s)
\x16--- PASS: TestConformance/HTTPRouteMatching (3.02s)
\x16--- FAIL: TestConformance/GatewayModifyListeners/should_be_able_to_add (60.00s)
\x16--- FAIL: TestConformance/GatewayModifyListeners (61.70s)
\x16--- SKIP: TestConformance/UDPRoute (0.00s)
\x16--- FAIL: TestConformance (93.10s)
FAIL
"""
REPORT = {
    "profiles": [
        {
            "name": "GATEWAY-HTTP",
            "core": {"statistics": {"Passed": 1, "Failed": 1, "Skipped": 0}},
            "extended": {"statistics": {"Passed": 2, "Failed": 0, "Skipped": 4}},
        },
        {"name": "GATEWAY-GRPC", "core": {"statistics": {"Passed": 3, "Failed": 0, "Skipped": 0}}},
    ]
}
PASSED = Result("PASS", "HTTPRouteMatching", 3.02)
FAILED = Result("FAIL", "GatewayModifyListeners", 61.7)
SKIPPED = Result("SKIP", "UDPRoute", 0.0)


def test_each_test_that_ran_is_reported_once_with_its_time_and_the_log_has_no_marks(tmp_path):
    told = []
    suite = (sys.executable, "-c", f"import sys; sys.stdout.write({SAID!r}); sys.exit(3)")
    code, results = conformance._run(suite, {}, tmp_path / "log", told.append)
    assert told == [
        "the suite: Applying base manifests",
        "PASS  HTTPRouteMatching (3 s)",
        "FAIL  GatewayModifyListeners (62 s)",
    ]
    assert (code, results) == (3, (PASSED, FAILED, SKIPPED))
    assert (tmp_path / "log").read_text() == SAID.replace("\x16", "")


def test_the_sum_has_the_count_of_each_profile_and_the_names_of_those_that_failed():
    outcome = Outcome("gateway", (PASSED, FAILED, SKIPPED), REPORT, 93.0, 1)
    assert list(conformance.summary(outcome)) == [
        "gateway: 1 of 2 tests passed, 1 were not run, in 1.6 minutes",
        "  GATEWAY-HTTP: core 1 of 2, extended 2 of 2",
        "  GATEWAY-GRPC: core 3 of 3",
        "  FAIL  GatewayModifyListeners",
    ]


def test_the_summary_shows_the_exit_code_of_a_suite_that_ended_early():
    assert list(conformance.summary(Outcome("mesh", (), {}, 6.0, -9))) == [
        "mesh: 0 of 0 tests passed, 0 were not run, in 0.1 minutes",
        "  the suite itself exited with -9",
    ]


@pytest.mark.parametrize(
    ("results", "code", "good"),
    [
        ((PASSED, SKIPPED), 0, True),
        ((PASSED, FAILED), 1, False),
        ((PASSED,), -9, False),
        ((SKIPPED,), 0, False),
        ((), 0, False),
    ],
)
def test_a_run_is_good_when_something_ran_and_nothing_failed(results, code, good):
    assert Outcome("mesh", results, {}, 1.0, code).good is good


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
