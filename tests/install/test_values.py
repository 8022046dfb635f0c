"""Values are checked before they are used, and an error names the value."""

import pytest

from weft.install.values import Values, ValuesError, merged, values_of, written


def refused(**given):
    with pytest.raises(ValuesError) as error:
        values_of(given)
    return error.value.problem


def test_nothing_given_is_the_default():
    assert values_of({}) == Values()


def test_what_is_given_is_used_and_the_rest_stays():
    values = values_of({"control": {"replicas": 3}, "node": {"kubeletRoot": "/k"}})
    assert (values.control.replicas, values.node.kubelet_root) == (3, "/k")
    assert values.control.resources == Values().control.resources


def test_written_values_can_be_read_again():
    values = values_of({"revision": "a", "mesh": {"trustDomain": "example.org"}, "imagePullSecrets": ["x"]})
    assert values_of(written(values)) == values


def test_mappings_are_merged_and_lists_are_replaced():
    assert merged({"a": {"b": 1}, "c": [1, 2]}, {"a": {"d": 2}, "c": [3]}) == {"a": {"b": 1, "d": 2}, "c": [3]}


def test_an_unknown_name_is_rejected_with_a_suggestion():
    problem = refused(control={"replica": 3})
    assert "control.replica" in problem.what
    assert "replicas" in problem.hint


def test_an_unknown_name_deep_inside_is_refused_too():
    assert "control.resources.limit" in refused(control={"resources": {"limit": {}}}).what


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"control": {"replicas": 1}}, "control.replicas"),
        ({"control": {"replicas": "many"}}, "control.replicas"),
        ({"control": "many"}, "control"),
        ({"revision": "Not-A-Label"}, "revision"),
        ({"revision": "x" * 41}, "revision"),
        ({"namespace": "a.b"}, "namespace"),
        ({"injection": {"excludedNamespaces": ["shop"]}}, "injection.excludedNamespaces"),
        ({"node": {"kubeletRoot": "var/lib/kubelet"}}, "node.kubeletRoot"),
        ({"node": {"kubeletRoot": "/var/lib/kubelet/"}}, "node.kubeletRoot"),
        ({"node": {"certificateTtl": "soon"}}, "node.certificateTtl"),
        ({"image": ""}, "image"),
        ({"control": {"resources": {"limits": {"cpu": "lots"}}}}, "control.resources.limits.cpu"),
        ({"node": {"resources": {"requests": {"memory": "1GB"}}}}, "node.resources.requests.memory"),
        ({"injection": {"failurePolicy": "Maybe"}}, "injection.failurePolicy"),
        ({"injection": {"settings": {"image": "x"}}}, "injection.settings.image"),
        ({"mesh": {"trustDomain": "No Domain"}}, "mesh.trustDomain"),
        ({"mesh": {"accesLogFile": "/dev/stdout"}}, "mesh.accesLogFile"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_rejected_with_its_name(given, field):
    assert refused(**given).where.field == field
