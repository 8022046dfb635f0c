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


def test_a_field_is_found_at_its_own_line_or_at_what_holds_it():
    assert document().where(("spec", "http", 0)).line == 9
    assert document().where(("spec", "http", 0, "route", 1, "weight")).line == 9
    assert document().where(("metadata", "labels")).line == 3


def test_a_path_reads_as_people_write_it():
    assert dotted(("spec", "http", 0, "route", 1, "weight")) == "spec.http[0].route[1].weight"
    assert str(document().where(("spec", "hosts"))) == "payments.yaml:7: VirtualService shop/payments: spec.hosts"


def test_a_path_as_people_write_it_can_be_followed_again():
    path = ("spec", "http", 0, "route", 1, "weight")
    assert undotted(dotted(path)) == path
    assert document().where(undotted("spec.http[0].match")).line == 9
    assert document().where(undotted("metadata.annotations.a.b/c")).line == 3
    assert undotted("spec.portLevelMtls.8080.mode") == ("spec", "portLevelMtls", "8080", "mode")
