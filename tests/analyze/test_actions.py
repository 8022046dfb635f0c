"""What routes do: the cases of WFT0113 to WFT0117 and WFT0123 to WFT0126 have the plain ones."""

import pytest

from analyze.meshes import WEB, facts, istio
from weft.analyze.actions import of_actions


def found(route, more=""):
    text = WEB + more + istio("VirtualService", f"{{hosts: [web], http: [{route}]}}")
    return [problem.code for problem in of_actions(facts(text))]


def test_a_timeout_with_time_for_a_second_try_or_none_has_no_findings():
    to = "route: [{destination: {host: web}}]"
    assert found(f"{{timeout: 2s, retries: {{attempts: 2, perTryTimeout: 1s}}, {to}}}") == []
    assert found(f"{{retries: {{attempts: 2, perTryTimeout: 1s}}, {to}}}") == []


def test_a_fault_for_all_requests_is_reported_and_for_some_is_not():
    fault = "fault: {abort: {percentage: {value: 100}, httpStatus: 500}}, route: [{destination: {host: web}}]"
    assert found(f"{{{fault}}}") == ["WFT0116"]
    assert found(f"{{match: [{{headers: {{x-test: {{exact: 'yes'}}}}}}], {fault}}}") == []


def test_weights_are_reported_as_shares():
    two = "route: [{destination: {host: web}, weight: 1}, {destination: {host: web, port: {number: 80}}, weight: 3}]"
    (problem,) = of_actions(facts(WEB + istio("VirtualService", f"{{hosts: [web], http: [{{{two}}}]}}")))
    assert problem.what == "the weights add up to 4: the shares are 25 %, 75 %"


@pytest.mark.parametrize(
    ("routes", "circles"),
    [
        ("{redirect: {uri: /login}}", True),
        ("{match: [{uri: {prefix: /lo}}], redirect: {uri: /login}}", True),
        ("{match: [{uri: {exact: /login}}], redirect: {uri: /login}}", True),
        ("{redirect: {uri: /login, authority: other.com}}", False),
        ("{match: [{uri: {prefix: /old}}], redirect: {uri: /new}}", False),
        ("{match: [{uri: {prefix: /}, withoutHeaders: {cookie: {regex: '.*'}}}], redirect: {uri: /login}}", False),
        (
            "{match: [{uri: {exact: /login}}], route: [{destination: {host: web}}]}, "
            "{match: [{uri: {prefix: /}}], redirect: {uri: /login}}",
            False,
        ),
    ],
)
def test_a_redirect_that_its_own_route_matches_again_is_reported_as_a_loop(routes, circles):
    assert found(routes) == (["WFT0123"] if circles else [])


def test_a_mirror_to_another_host_or_beside_other_destinations_has_no_findings():
    assert found("{route: [{destination: {host: web}}], mirror: {host: web, port: {number: 80}}}") == []
    two = (
        "{route: [{destination: {host: web}, weight: 50}, {destination: {host: web, port: {number: 80}}, weight: 50}], "
    )
    assert found(f"{two} mirror: {{host: web}}}}") == []


def test_a_destination_needs_no_port_if_it_has_the_called_port_or_only_one():
    api = "---\napiVersion: v1\nkind: Service\nmetadata: {name: api, namespace: shop}\nspec: {selector: {app: web}, ports: [%s]}\n"
    to = "{route: [{destination: {host: api}}]}"
    assert found(to, api.replace("%s", "{name: http, port: 81}")) == []
    assert found(to, api.replace("%s", "{name: http, port: 80}, {name: http-b, port: 81}")) == []
    assert found(to, api.replace("%s", "{name: http, port: 82}, {name: http-b, port: 81}")) == ["WFT0114"]


TWO_PORTS = """---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 82}, {name: http-b, port: 81}]}
"""


def test_a_mirror_without_the_called_port_is_reported_too():
    copied = "{route: [{destination: {host: web}}], mirror: {host: api%s}}"
    assert found(copied % "", TWO_PORTS) == ["WFT0114"]
    assert found(copied % ", port: {number: 81}", TWO_PORTS) == []


def test_a_delegate_is_called_at_the_ports_of_its_root():
    delegate = (
        "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: part, namespace: shop}\n"
        "spec: {http: [{match: [{port: %s}], route: [{destination: {host: api}}]}]}\n"
    )
    assert found("{delegate: {name: part}}", TWO_PORTS + delegate % 80) == ["WFT0114"]
    assert found("{delegate: {name: part}}", TWO_PORTS + delegate % 81) == []
    assert found("{delegate: {name: other}}", TWO_PORTS + delegate % 80) == []


def test_a_method_in_lower_case_is_reported():
    to = "route: [{destination: {host: web}}]"
    assert found(f"{{match: [{{method: {{exact: get}}}}, {{method: {{prefix: p}}}}], {to}}}") == ["WFT0124"] * 2
    assert found(f"{{match: [{{method: {{exact: GET}}}}, {{method: {{regex: 'get|GET'}}}}], {to}}}") == []


@pytest.mark.parametrize("fault", ["delay: {fixedDelay: 5s, PART}", "abort: {httpStatus: 500, PART}"])
def test_a_fault_for_a_whole_path_is_reported_and_one_for_a_header_is_not(fault):
    for match, share, codes in (
        ("uri: {prefix: /pay}", 100, ["WFT0125"]),
        ("uri: {prefix: /pay}", 99, []),
        ("uri: {prefix: /pay}, headers: {x-test: {exact: 'yes'}}", 100, []),
    ):
        written = fault.replace("PART", f"percentage: {{value: {share}}}")
        route = f"{{match: [{{{match}}}], fault: {{{written}}}, route: [{{destination: {{host: web}}}}]}}"
        assert found(route) == codes


@pytest.mark.parametrize(
    ("match", "reasons", "codes"),
    [
        ("", "5xx", ["WFT0126"]),
        ("", "'reset, 503'", ["WFT0126"]),
        ("", "'502'", ["WFT0126"]),
        ("", "'503,connect-failure,reset-before-request,unavailable'", []),
        ("match: [{method: {exact: GET}}, {method: {exact: PUT}}],", "5xx", []),
        ("match: [{method: {exact: GET}}, {method: {exact: POST}}],", "5xx", ["WFT0126"]),
        ("match: [{method: {regex: GET|HEAD}}],", "5xx", []),
        ("match: [{uri: {prefix: /a}}],", "gateway-error", ["WFT0126"]),
    ],
)
def test_a_post_that_may_be_processed_twice_is_reported(match, reasons, codes):
    to = "route: [{destination: {host: web}}]"
    assert found(f"{{{match} retries: {{attempts: 2, retryOn: {reasons}}}, {to}}}") == codes
