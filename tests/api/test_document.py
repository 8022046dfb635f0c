from weft.api.document import Document, dotted, undotted
from weft.model.names import ObjectKey


def document():
    return Document(
        key=ObjectKey("VirtualService", "shop", "payments"),
        api_version="networking.istio.io/v1",
        body={},
        file="payments.yaml",
        line=3,
        lines={("spec",): 7, ("spec", "http", 0): 9},
    )


def test_a_field_has_its_own_line_or_that_of_the_field_that_contains_it():
    assert document().where(("spec", "http", 0)).line == 9
    assert document().where(("spec", "http", 0, "route", 1, "weight")).line == 9
    assert document().where(("metadata", "labels")).line == 3


def test_dotted_returns_a_path_as_text():
    assert dotted(("spec", "http", 0, "route", 1, "weight")) == "spec.http[0].route[1].weight"
    assert str(document().where(("spec", "hosts"))) == "payments.yaml:7: VirtualService shop/payments: spec.hosts"


def test_undotted_is_the_inverse_of_dotted():
    path = ("spec", "http", 0, "route", 1, "weight")
    assert undotted(dotted(path)) == path
    assert document().where(undotted("spec.http[0].match")).line == 9
    assert document().where(undotted("metadata.annotations.a.b/c")).line == 3
    assert undotted("spec.portLevelMtls.8080.mode") == ("spec", "portLevelMtls", "8080", "mode")
