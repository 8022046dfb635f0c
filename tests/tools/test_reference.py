"""The reference page is up to date with the readers."""

import importlib.util
from pathlib import Path

import pytest

from api.reading import istio, told

TOOL = Path(__file__).resolve().parent.parent.parent / "tools" / "reference.py"


@pytest.fixture(scope="module")
def reference():
    found = importlib.util.spec_from_file_location("reference", TOOL)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date_with_the_readers(reference):
    assert reference.PAGE.read_text() == reference.page(), "run: make reference"


def fields(reference, kind, fate):
    return {field for field, found in reference.read_fields(kind).fates.items() if found == fate}


def test_a_field_stands_where_its_reader_puts_it(reference):
    assert "spec.http[].retries.attempts" in fields(reference, "VirtualService", reference.ACTED_ON)
    assert "spec.http[].mirrorPercent" in fields(reference, "VirtualService", reference.DEPRECATED)
    assert "spec.sessionAffinity" in fields(reference, "Service", reference.IGNORED)
    assert "spec.trafficPolicy.tls.sni" in fields(reference, "DestinationRule", reference.ACTED_ON)
    assert "spec.trafficPolicy.retryBudget.budgetInterval" in fields(reference, "DestinationRule", reference.REFUSED)


def test_a_field_rejected_in_one_form_of_a_kind_is_listed_with_that_form(reference):
    assert "spec.command" in fields(reference, "Workload", reference.ACTED_ON)
    assert "spec.command" in reference.read_fields("Workload").sometimes
    assert "spec.env[].valueFrom" in fields(reference, "Workload", reference.REFUSED)
    assert reference.read_fields("GatewayClass").sometimes == {"spec.parametersRef"}
    assert ", rejected beside `gateway`:" in reference.page()


@pytest.mark.parametrize("kind", ["VirtualService", "DestinationRule", "ServiceEntry", "Sidecar"])
def test_fields_of_every_category_are_handled_as_listed(reference, kind):
    """Each field alone in its object: none is unknown, and a field that is accepted with a warning gets one."""
    for fate in (reference.ACTED_ON, reference.WARNED, reference.IGNORED, reference.REFUSED):
        for field in fields(reference, kind, fate):
            names = field.replace("[]", ".[]").split(".")
            if names[0] != "spec" or "*" in names:
                continue
            text = "{}"
            for name in reversed(names[1:]):
                text = f"[{text}]" if name == "[]" else f"{{{name}: {text}}}"
            said = told(istio(kind, text))
            assert not any("unknown field" in line for line in said), (field, said)
            if fate == reference.WARNED and "deprecated" not in field:
                assert any(names[-1] in line for line in said), (field, said)
