"""The example shop on a real cluster: the same YAML and the same promises as on one machine, tested on the wire."""

import base64
import json
import re

import pytest
from tools.kube.process import Failed

from on_cluster import shop as shops
from on_cluster.mesh import NAMESPACE, until
from on_cluster.shop import Shop
from weft.cluster.root_secret import NAME as ROOT_SECRET
from weft.cluster.root_secret import ROTATE, STATE

ROTATIONS = 3
SNOOP = "spiffe://cluster.local/ns/shop/sa/snoop"


@pytest.fixture(scope="module")
def shop(mesh, tmp_path_factory):
    """Certificates live a minute: all tests run during renewals."""
    found = Shop(mesh, tmp_path_factory.mktemp("shop"))
    found.close(wait=True)  # what an earlier run left
    mesh.install("--set", "node.certificateTtl=60s")
    mesh.rolled_out(NAMESPACE, "daemonset/weft-node")
    try:
        found.open()
        yield found
    finally:
        found.close(wait=False)
        mesh.install()


def containers(pod):
    return [each["name"] for each in [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]]


def test_the_shop_opens(shop):
    until(lambda: "100.0 % ok" in shop.log("deployment/loadgen"), timeout=60, every=1)
    for pod in shop.get("pods", "-l", "app in (frontend, catalog, inventory, payments, ledger)")["items"]:
        assert containers(pod)[:2] == ["istio-init", "istio-proxy"]


def test_a_job_completes_though_it_had_a_proxy(shop):
    shop.mesh.wait(shops.NAME, "job/migrate", condition="condition=Complete")
    pods = shop.get("pods", "-l", "app=migrate")["items"]
    done = [pod for pod in pods if pod["status"]["phase"] == "Succeeded"]
    assert len(done) == 1
    assert "istio-proxy" in containers(done[0])
    assert "OK 2" in shop.log(done[0]["metadata"]["name"])


def test_allowed_calls_are_served_and_others_are_denied_by_a_named_policy(shop):
    assert shop.ask("deployment/frontend", "http://payments/pay") == "200"
    assert shop.ask("deployment/snoop", "http://payments/pay") == "403"
    lines = until(lambda: refusals(shop, f'downstream_peer="{SNOOP}"'))
    assert all(" 403 " in line and "ns[shop]-policy[till]-rule[0]" in line for line in lines)


def test_plaintext_is_rejected_and_the_log_shows_why(shop):
    (outsider,) = shop.get("pods", "-l", "app=outsider")["items"]
    assert containers(outsider) == ["app"]
    said = shop.ask("deployment/outsider", "http://payments/pay")
    assert "reset" in said.lower() or "closed" in said.lower(), said
    address = outsider["status"]["podIP"]
    lines = until(lambda: refusals(shop, "filter_chain_not_found"))
    assert any(f" {address}:" in line for line in lines)


def refusals(shop, words):
    said = shop.log("deployment/payments-v1", "istio-proxy") + shop.log("deployment/payments-v2", "istio-proxy")
    return [line for line in said.splitlines() if words in line]


def test_two_versions_share_the_payments_by_weight(shop):
    taken = [each["body"]["version"] for each in shop.ask_often("deployment/frontend", "http://payments/pay", 100)]
    assert 70 <= taken.count("v1") <= 99  # 100 requests, 9 to 1
    assert taken.count("v2") == 100 - taken.count("v1")


def test_a_changed_route_applies_without_a_restart_and_its_status_is_accepted(shop):
    before = [each["metadata"]["uid"] for each in shop.get("pods", "-l", "app in (frontend, payments)")["items"]]
    shop.apply(shops.split(0, 100))

    def all_to_second():
        taken = shop.ask_often("deployment/frontend", "http://payments/pay", 20)
        return {each["body"]["version"] for each in taken} == {"v2"}

    until(all_to_second, timeout=60)

    def accepted():
        found = shop.get("virtualservice", "payments")
        conditions = {each["type"]: each for each in found.get("status", {}).get("conditions", ())}
        verdict = conditions.get("Accepted", {})
        return verdict.get("observedGeneration") == found["metadata"]["generation"] and verdict["status"] == "True"

    until(accepted)
    after = [each["metadata"]["uid"] for each in shop.get("pods", "-l", "app in (frontend, payments)")["items"]]
    assert after == before
    shop.apply(shops.split(50, 50))


def test_an_invalid_route_is_rejected_with_the_errors_of_weft_validate(shop, tmp_path):
    match = {"uri": {"regex": "/pay("}}  # an error that a schema cannot detect
    wrong = shops.virtual_service("payments", {"match": [match], "route": [{"destination": {"host": "payments"}}]})
    (tmp_path / "wrong.yaml").write_text(json.dumps(wrong))
    said = shop.mesh.weft("validate", str(tmp_path), check=False)
    words = re.search(r"wrong\.yaml:\d+: .*?: .*?: (error \[WFT0001\]: .*)", said)[1]
    generation = shop.get("virtualservice", "payments")["metadata"]["generation"]
    with pytest.raises(Failed) as refused:
        shop.apply(wrong)
    assert words in str(refused.value), f"{said}\n{refused.value}"
    assert shop.get("virtualservice", "payments")["metadata"]["generation"] == generation


def test_failed_calls_are_retried(shop):
    cluster = "outbound|80||catalog.shop.svc.cluster.local"
    again = {"attempts": 5, "retryOn": "5xx"}
    shop.apply(shops.virtual_service("catalog", {"retries": again, "route": [{"destination": {"host": "catalog"}}]}))
    before = shop.retries("deployment/frontend", cluster)

    def break_one():
        shop.apply(shops.broken_catalog())
        until(lambda: shop.log("catalog-broken").count("refused") >= 5, timeout=120, every=1)

    assert not shop.served(break_one)
    assert shop.retries("deployment/frontend", cluster) >= before + 5
    shop.kubectl("delete", "pod", f"--namespace={shops.NAME}", "catalog-broken")
    shop.kubectl("delete", "virtualservice", f"--namespace={shops.NAME}", "catalog")


def test_what_is_on_the_machines_own_network_is_left_alone(shop):
    shop.apply(shops.host_network_daemon())
    shop.kubectl("rollout", "status", f"--namespace={shops.NAME}", "daemonset/on-host", "--timeout=120s")
    (pod,) = shop.get("pods", "-l", "app=on-host")["items"]
    assert containers(pod) == ["app"]
    assert "sidecar.istio.io/status" not in pod["metadata"].get("annotations", {})
    shop.kubectl("delete", "daemonset", f"--namespace={shops.NAME}", "on-host", "--wait=false")


def test_the_clusters_own_namespace_is_left_alone(shop):
    for pod in json.loads(shop.kubectl("get", "pods", "--namespace=kube-system", "-o", "json"))["items"]:
        assert "istio-proxy" not in containers(pod)
    # Webhooks are also called for a dry run.
    trying = ["run", "new", "--image=new", "--dry-run=server", "-o", "json"]
    assert containers(json.loads(shop.kubectl(*trying, "--namespace=kube-system"))) == ["new"]
    assert "istio-proxy" in containers(json.loads(shop.kubectl(*trying, f"--namespace={shops.NAME}")))


def test_every_deployment_is_restarted_twice_and_no_customer_notices(shop):
    def restart():
        names = shop.deployments()
        shop.kubectl("rollout", "restart", f"--namespace={shops.NAME}", *names)
        shop.mesh.rolled_out(shops.NAME, *names)

    before = {each["metadata"]["uid"] for each in shop.get("pods")["items"]}
    for _ in range(2):
        assert not shop.served(restart)
    stayed = [each for each in shop.get("pods")["items"] if each["metadata"]["uid"] in before]
    assert {each["metadata"]["labels"]["app"] for each in stayed if not over(each)} == {"customer"}


def over(pod):
    return "deletionTimestamp" in pod["metadata"] or pod["status"]["phase"] == "Succeeded"


def test_a_new_root_takes_over_and_no_customer_notices(shop):
    end_rotation(shop)
    people = ["customer", "deployment/frontend", "deployment/payments-v1", "deployment/inventory"]
    before = shop.certificate("customer").issuer

    def rotate():
        shop.kubectl("annotate", "secret", ROOT_SECRET, f"--namespace={NAMESPACE}", f"{ROTATE}=10")
        until(lambda: root_state(shop).get("previous"), timeout=120, every=1)
        for each in people:
            until(lambda who=each: shop.certificate(who).issuer != before, timeout=120, every=1)

    assert not shop.served(rotate)
    assert len({shop.certificate(each).issuer for each in people}) == 1


def end_rotation(shop):
    """On a permanent cluster, the rotation of an earlier run continues until all certificates of that day have
    expired."""
    state = root_state(shop)
    if state.get("previous"):
        told = base64.b64encode(json.dumps(state | {"drop_at": 1.0}).encode()).decode()
        patch = json.dumps({"data": {STATE: told}})
        shop.kubectl("patch", "secret", ROOT_SECRET, f"--namespace={NAMESPACE}", "--patch", patch)
        until(lambda: not root_state(shop).get("previous"), timeout=60, every=1)


def root_state(shop):
    secret = json.loads(shop.kubectl("get", "secret", ROOT_SECRET, f"--namespace={NAMESPACE}", "-o", "json"))
    return json.loads(base64.b64decode(secret["data"][STATE]))


def test_certificates_are_replaced_and_no_customer_notices(shop):
    """The last test, which covers all of the above: since the shop opened, no request failed."""
    assert not shop.served(lambda: until(lambda: len(shop.certificates()) > ROTATIONS, timeout=200, every=2))
    assert len(set(shop.certificates())) == len(shop.certificates())
    assert [each for each in shop.answers()[shop.opened :] if each["status"] != 200] == []
