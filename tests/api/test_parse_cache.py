import msgspec

from weft.api import parse_cache as reading
from weft.api.parse_cache import Reading
from weft.files.documents import read_documents

SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80}]}
"""


def test_a_document_is_read_once_for_each_domain(monkeypatch):
    asked = []
    real = reading.parse
    monkeypatch.setattr(reading, "parse", lambda *given: asked.append(given) or real(*given))
    (document,) = read_documents(SERVICE.encode(), "web.yaml").documents
    read = Reading()
    assert read(document) is read(document)
    assert read(document) == real(document)
    assert read(document, "other.domain").values[0].host == "web.shop.svc.other.domain"
    assert len(asked) == 2


def test_another_document_of_the_same_object_is_parsed_again():
    (document,) = read_documents(SERVICE.encode(), "web.yaml").documents
    ports = {"ports": [{"port": 81}]}
    other = msgspec.structs.replace(document, body={**document.body, "spec": ports})
    read = Reading()
    assert [read(each).values[0].ports[0].number for each in (document, other)] == [80, 81]
