from weft.analyze.finding import finding, meant_host, meant_labels, written
from weft.base.problem import Severity
from weft.model.names import ObjectKey, Origin, labels_of


def test_a_finding_has_its_code_and_the_position_of_its_object_or_line():
    origin = Origin(ObjectKey("Service", "shop", "web"), "", "a.yaml", 3)
    assert str(finding("WFT0301", origin, "spec.selector", "x")) == (
        "a.yaml:3: Service shop/web: spec.selector: warning [WFT0301]: x"
    )
    assert finding("WFT0301", origin, "spec", "x", line=9).where.line == 9
    assert finding("WFT0307", None, "spec", "x").severity is Severity.INFO


def test_a_host_is_guessed_by_similarity_or_by_a_missing_suffix():
    known = ["web.shop.svc.cluster.local"]
    assert "did you mean `web.shop.svc" in meant_host("wbe.shop.svc.cluster.local", known, "cluster.local")
    assert "write web.shop.svc.cluster.local" in meant_host("web.shop", known, "cluster.local")
    assert "write web.shop.svc.cluster.local" in meant_host("web.shop.svc", known, "cluster.local")
    assert meant_host("elsewhere.org", known, "cluster.local") == ""


def test_the_wrong_label_is_named():
    there = [labels_of({"app": "web", "version": "v1"}), labels_of({"app": "api"})]
    assert meant_labels(labels_of({"app": "wbe"}), there) == "app: did you mean `web`?"
    assert meant_labels(labels_of({"ap": "web"}), there) == "did you mean `app`?"
    assert "no workload has all of them" in meant_labels(labels_of({"app": "api", "version": "v1"}), there)
    assert meant_labels(labels_of({"app": "web"}), []) == "there is no workload at all"
    assert written(labels_of({"b": "2", "a": "1"})) == "a=1, b=2"
