import msgspec
import pytest

from weft.kube import objects


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        (objects.PodObject, {"metadata": {"name": "a", "namespace": "b"}}),
        (objects.Slice, {"metadata": {"name": "a", "namespace": "b"}}),
        (objects.WrittenObject, {"metadata": {"name": "a"}}),
        (objects.JudgedObject, {"metadata": {"name": "a"}}),
        (objects.NamedObject, {"metadata": {"name": "a"}}),
        (objects.DefinitionObject, {"metadata": {"name": "a"}}),
    ],
)
def test_an_object_needs_no_more_than_its_name(type_, body):
    assert msgspec.convert(body, type_).metadata.name == "a"


def test_unused_fields_are_not_decoded():
    body = {"metadata": {"name": "a", "namespace": "b", "managedFields": 7}, "spec": {"volumes": "no list at all"}}
    assert msgspec.convert(body, objects.PodObject).spec.containers is None


def test_addresses_are_spelled_as_kubernetes_spells_them():
    found = msgspec.convert({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}, objects.PodObjectStatus)
    assert (found.pod_ip, found.pod_ips[0].ip) == ("10.0.0.1", "10.0.0.1")


def test_a_condition_is_written_as_kubernetes_reads_it():
    made = objects.ObjectCondition("Accepted", "True", "Accepted", "", "2026-01-01T00:00:00Z", 3)
    assert msgspec.to_builtins(made)["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert msgspec.to_builtins(made)["observedGeneration"] == 3
