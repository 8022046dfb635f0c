"""A real API server checks the CRDs: it establishes them, stores every valid object of this project completely, and
rejects objects that are obviously wrong."""

import copy
import json
from pathlib import Path

import pytest
import yaml

from eventually import eventually_blocking
from weft.api.document import Document
from weft.api.parse import parse
from weft.base.problem import Severity
from weft.install.crds import DEFINITIONS, crds
from weft.model.names import ObjectKey

ROOT = Path(__file__).resolve().parent.parent.parent
KINDS = {definition.kind: definition for definition in DEFINITIONS}


def written():
    """Return every object of these kinds in the golden cases and the examples that weft accepts."""
    for file in sorted([*ROOT.glob("tests/golden/*/*.yaml"), *ROOT.glob("examples/*/*.yaml")]):
        if file.name == "resources.yaml":
            continue
        for body in yaml.load_all(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(body, dict) and ".istio.io/" in str(body.get("apiVersion")):
                key = ObjectKey(body["kind"], "default", body["metadata"]["name"])
                problems = parse(Document(key, body["apiVersion"], body)).problems
                if not any(problem.severity is Severity.ERROR for problem in problems):
                    yield body


def path(api_version, kind):
    return f"/apis/{api_version}/namespaces/default/{KINDS[kind].plural}"


def as_json(value):
    """Convert a YAML value to JSON: keys become strings."""
    if isinstance(value, dict):
        return {str(name): as_json(held) for name, held in value.items()}
    return [as_json(each) for each in value] if isinstance(value, list) else value


def sent(body):
    body = as_json(copy.deepcopy(body))
    body["metadata"] = {"name": body["metadata"]["name"], "namespace": "default"}
    return body


@pytest.fixture(scope="module")
def served(judge):
    """The API server, once it serves every version."""
    for definition in crds():
        name = definition["metadata"]["name"]
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        eventually_blocking(lambda path=path: judge.server.request("GET", path), established, every=0.1)
    return judge


def established(definition):
    conditions = {each["type"]: each["status"] for each in definition["status"].get("conditions", ())}
    assert conditions.get("NonStructuralSchema") != "True", definition["status"]
    return conditions.get("Established") == "True"


def test_there_are_valid_objects_of_most_kinds_to_try():
    assert len({body["kind"] for body in written()}) >= 8


def test_every_valid_object_is_taken_and_nothing_of_it_is_lost(served):
    count = 0
    for body in written():
        stored = served.create(path(body["apiVersion"], body["kind"]), sent(body))
        assert stored.get("spec") == sent(body).get("spec")
        count += 1
    assert count > 50


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each.kind)
def test_each_version_is_served_and_one_is_stored(served, definition):
    found = served.server.request(
        "GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition.plural}.{definition.group}"
    )
    assert found["status"]["storedVersions"] == [definition.stored]
    for version in definition.versions:
        listed = served.server.request("GET", f"/apis/{definition.group}/{version}/{definition.plural}")
        assert listed["kind"] == f"{definition.kind}List"


def test_what_weft_does_not_know_is_kept(served):
    body = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "x"},
        "spec": {"hosts": ["x"], "news": {"a": [1]}, "http": [{"route": [{"destination": {"host": "x", "new": 1}}]}]},
    }
    assert served.create(path("networking.istio.io/v1", "VirtualService"), body)["spec"] == body["spec"]


def test_numbers_may_be_quoted_as_in_protobufs_json(served):
    body = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "WorkloadEntry",
        "metadata": {"name": "x"},
        "spec": {"address": "10.0.0.1", "weight": "7"},
    }
    served.create(path("networking.istio.io/v1", "WorkloadEntry"), body)


WRONG = [
    ("VirtualService", {"hosts": "x"}, "spec.hosts"),
    ("VirtualService", {"hosts": ["x"], "http": [{"timeout": "soon"}]}, "timeout"),
    ("VirtualService", {"hosts": ["x"], "http": [{"timeout": 5}]}, "timeout"),
    ("VirtualService", {"hosts": ["x"], "http": [{"route": [{"weight": 1}]}]}, "destination"),
    ("VirtualService", {"hosts": ["x"], "http": [{"route": [{"destination": {"host": "x"}, "weight": -1}]}]}, "weight"),
    ("VirtualService", {"hosts": ["x"], "http": [{"retries": {"attempts": "many"}}]}, "attempts"),
    ("VirtualService", {"hosts": ["x"], "http": [{"match": [{"uri": {"exact": 5}}]}]}, "exact"),
    ("DestinationRule", {"trafficPolicy": {}}, "spec.host"),
    ("DestinationRule", {"host": "x", "trafficPolicy": {"tls": {"mode": "SIMPEL"}}}, "mode"),
    ("ServiceEntry", {"hosts": ["x"], "ports": [{"number": 99999, "name": "http"}]}, "number"),
    ("ServiceEntry", {"hosts": ["x"], "resolution": "MAYBE"}, "resolution"),
    ("WorkloadEntry", {"labels": {}}, "address"),
    ("Sidecar", {"workloadSelector": {"labels": {"app": True}}}, "labels"),
    ("Gateway", {"servers": [{"hosts": ["x"]}]}, "port"),
    ("AuthorizationPolicy", {"action": "FORBID"}, "action"),
    ("AuthorizationPolicy", {"rules": [{"from": [{}]}]}, "source"),
    ("PeerAuthentication", {"mtls": {"mode": "STRIKT"}}, "mode"),
    ("PeerAuthentication", {"portLevelMtls": {"80": {"mode": 1}}}, "mode"),
    ("RequestAuthentication", {"jwtRules": [{"issuer": 5}]}, "issuer"),
    ("Telemetry", {"accessLogging": [{"disabled": "yes"}]}, "disabled"),
]


@pytest.mark.parametrize(("kind", "spec", "named"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_an_invalid_object_is_rejected_with_its_field(served, kind, spec, named):
    for version in KINDS[kind].versions:
        api_version = f"{KINDS[kind].group}/{version}"
        body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
        refusal = served.refusal(path(api_version, kind), body)
        assert refusal.startswith("422")
        assert named in refusal


def virtual_service(timeout):
    spec = {"hosts": ["x"], "http": [{"timeout": timeout, "route": [{"destination": {"host": "x"}}]}]}
    return {"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "x"}, "spec": spec}


def test_an_invalid_duration_is_rejected_with_a_message(served):
    said = json.loads(
        served.refusal(path("networking.istio.io/v1", "VirtualService"), virtual_service("soon")).partition(": ")[2]
    )["message"]
    assert 'spec.http[0].timeout: Invalid value: "soon"' in said and "must be of type duration" in said
    assert "[0-9]" not in said


@pytest.mark.parametrize("timeout", ["5s", "1h30m", "0.5s", ".5s", "1.s", "100us", "100µs", "10ns", "0", "0s"])
def test_whatever_weft_takes_for_a_duration_the_definition_takes_too(served, timeout):
    body = virtual_service(timeout)
    problems = parse(Document(ObjectKey("VirtualService", "default", "x"), body["apiVersion"], body)).problems
    assert not any("must be a duration" in problem.what for problem in problems)
    served.create(path("networking.istio.io/v1", "VirtualService"), body)


def test_each_writer_of_a_status_keeps_its_own_condition(served):
    body = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "conditions", "namespace": "default"},
        "spec": {"hosts": ["x"], "http": [{"route": [{"destination": {"host": "x"}}]}]},
    }
    place = path("networking.istio.io/v1", "VirtualService")
    served.server.request("POST", place, body)
    head = {"apiVersion": body["apiVersion"], "kind": body["kind"]}
    for manager, type_ in (("weft", "Accepted"), ("other", "Reconciled")):
        status = {"conditions": [{"type": type_, "status": "True"}]}
        served.server.request(
            "PATCH",
            f"{place}/conditions/status?fieldManager={manager}",
            {**head, "metadata": {"name": "conditions"}, "status": status},
            kind="application/apply-patch+yaml",
        )
    found = served.server.request("GET", f"{place}/conditions")
    assert {each["type"] for each in found["status"]["conditions"]} == {"Accepted", "Reconciled"}
    served.server.request("DELETE", f"{place}/conditions")
