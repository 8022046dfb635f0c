"""What only a running cluster tells."""

from weft.analyze.facts import facts_of
from weft.analyze.proxies import Installed, of_proxies
from weft.analyze.templates import template_of
from weft.api.document import Document
from weft.model.instance import Instance
from weft.model.names import ObjectKey, Origin
from weft.model.service import Service, ServicePort
from weft.model.settings import Namespace, Settings

INSTALLED = Installed(frozenset({"default", "canary"}), {"default": "weft:2"})


def pod(name="web", proxy="", driver="csi.weft.dev", phase="Running"):
    containers = [{"name": "app", "image": "app"}, *([{"name": "istio-proxy", "image": proxy}] if proxy else [])]
    body = {"spec": {"containers": containers, "volumes": [{"csi": {"driver": driver}}]}, "status": {"phase": phase}}
    return template_of(Document(ObjectKey("Pod", "shop", name), "v1", body))


def found(*pods, labels=(("istio-injection", "enabled"),), values=(), wants=True):
    origin = Origin(ObjectKey("Namespace", "", "shop"))
    facts = facts_of(Settings(), [(Namespace("shop", labels, origin), *values)])
    return [(each.code, each.where.object) for each in of_proxies(facts, pods, INSTALLED, lambda _: wants)]


def test_a_pod_without_the_proxy_it_would_get_now_is_reported():
    assert found(pod()) == [("WFT0804", "Pod shop/web")]
    assert found(pod(), wants=False) == []
    assert found(pod(phase="Succeeded")) == []
    assert found(pod(proxy="weft:2")) == []


def test_a_proxy_of_another_revision_than_its_namespaces_is_reported():
    assert found(pod(proxy="weft:2", driver="canary.csi.weft.dev")) == [("WFT0805", "Pod shop/web")]
    assert found(pod(proxy="weft:2", driver="canary.csi.weft.dev"), labels=(("istio.io/rev", "canary"),)) == []


def test_older_images_are_reported_once_per_namespace():
    assert found(pod("a", "weft:1"), pod("b", "weft:1")) == [("WFT0806", "Pod shop/a")]
    assert found(pod("a", "other", driver="canary.csi.weft.dev"), labels=(("istio.io/rev", "canary"),)) == []


def test_a_revision_that_is_not_installed_is_reported():
    assert found(labels=(("istio.io/rev", "cnary"),)) == [("WFT0803", "Namespace shop")]


def test_a_service_whose_pods_are_all_unready_is_reported():
    service = Service("web.shop", "web", "shop", (ServicePort(80),), selector=(("app", "web"),), sliced=True,
                      origin=Origin(ObjectKey("Service", "shop", "web")))  # fmt: skip

    def instance(name, ready):
        return Instance(name, "shop", ("192.0.2.1",), (("app", "web"),), ready=ready, by_slice=True)

    assert found(values=(service, instance("a", False), instance("b", False))) == [("WFT0317", "Service shop/web")]
    assert found(values=(service, instance("a", False), instance("b", True))) == []
    assert found(values=(service,)) == []
