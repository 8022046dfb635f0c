"""A schema contains what the kind's reader knows about each field."""

import pytest

from weft.api.parse import KINDS
from weft.install.crds import DEFINITIONS
from weft.install.schema import recorded


def at(kind, path):
    found = recorded(kind).properties["spec"].schema()
    for part in path.split("."):
        name, _, rest = part.partition("[]")
        found = found["properties"][name] if name != "*" else found["additionalProperties"]
        if rest or part.endswith("[]"):
            found = found["items"]
    return found


def test_text_is_a_string():
    assert at("DestinationRule", "host") == {"type": "string"}


def test_a_choice_is_an_enum_of_its_values_and_of_those_that_weft_itself_rejects():
    assert at("PeerAuthentication", "mtls.mode")["enum"] == ["DISABLE", "PERMISSIVE", "STRICT", "UNSET"]
    assert "MUTUAL" in at("Gateway", "servers[].tls.mode")["enum"]


def test_a_whole_number_has_its_limits_and_may_be_quoted():
    port = at("VirtualService", "http[].route[].destination.port.number")
    assert (port["minimum"], port["maximum"], port["x-kubernetes-int-or-string"]) == (1, 65535, True)


def test_a_duration_is_a_string_of_a_format_that_kubernetes_knows():
    assert at("VirtualService", "http[].timeout") == {"type": "string", "format": "duration"}


def test_mappings_with_free_keys_have_values_of_one_shape():
    assert at("PeerAuthentication", "portLevelMtls.*.mode")["type"] == "string"
    assert at("VirtualService", "http[].match[].headers.*.exact") == {"type": "string"}
    assert at("WorkloadEntry", "ports.*")["maximum"] == 65535


def test_required_is_what_the_reader_always_requires():
    spec = recorded("ServiceEntry").properties["spec"].schema()
    assert spec["required"] == ["hosts"]
    assert "required" not in recorded("VirtualService").properties["spec"].schema()  # a delegate has no hosts


def test_a_rejected_field_has_a_description():
    assert "Rejected" in at("DestinationRule", "trafficPolicy.retryBudget.budgetInterval")["description"]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each.kind)
def test_unknown_fields_are_never_pruned(definition):
    def check(schema):
        if schema.get("type") == "object" and "additionalProperties" not in schema:
            assert schema["x-kubernetes-preserve-unknown-fields"] is True
        if not {"type", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"} & set(schema):
            raise AssertionError(f"of no type: {schema}")
        for inner in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
            if isinstance(inner, dict):
                check(inner)

    check(recorded(definition.kind).properties["spec"].schema())


def test_every_kind_of_istio_that_is_read_has_a_definition():
    istio = {kind for kind, reader in KINDS.items() if ".istio.io/" in reader.versions[0]}
    assert istio == {definition.kind for definition in DEFINITIONS}
