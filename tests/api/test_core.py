from api.reading import told, value
from weft.model.settings import Namespace, ServiceAccount


def test_reads_a_namespace():
    found = value(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio-injection: enabled}}\nspec: {}\n"
    )
    assert found == Namespace("shop", (("istio-injection", "enabled"),), found.origin)


def test_reads_a_service_account():
    found = value(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web, namespace: shop}\nimagePullSecrets: []\n"
    )
    assert found == ServiceAccount("web", "shop", found.origin)


def test_a_misspelled_field_is_reported():
    text = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\nsecretz: []\n"
    assert told(text) == ["4 unknown field `secretz` (did you mean `secrets`?)"]
