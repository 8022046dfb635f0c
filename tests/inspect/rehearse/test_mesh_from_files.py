from tests.inspect.test_stage import asked

from weft.explain.decision import Kind
from weft.files.documents import read_documents
from weft.inspect.rehearse.mesh_from_files import written_mesh
from weft.inspect.stage import Stage
from weft.model.instance import Instance

WORKLOADS = """\
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: orders, namespace: shop, labels: {app: orders}}
spec: {command: [sleep, "1"], replicas: 3}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: payments, namespace: shop}
spec:
  selector: {matchLabels: {app: payments}}
  template:
    metadata: {labels: {app: payments}}
    spec: {containers: [{name: app, image: app, ports: [{containerPort: 8080}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: payments, namespace: shop}
spec: {clusterIP: 10.96.0.7, selector: {app: payments}, ports: [{name: http, port: 80, targetPort: 8080}]}
"""


def written(text):
    return written_mesh(read_documents(text.encode(), "mesh.yaml").documents)


def pods(mesh):
    return [value for _, values in mesh.values() for value in values if isinstance(value, Instance)]


def test_every_replica_has_a_pod_with_a_different_address():
    found = pods(written(WORKLOADS).mesh)
    assert sorted(each.name for each in found) == ["orders-0", "orders-1", "orders-2", "payments"]
    assert len({each.addresses for each in found}) == 4


def test_requests_between_workloads_and_deployments_can_be_explained():
    verdict = asked(Stage(written(WORKLOADS).mesh), "orders")
    assert (verdict.kind, verdict.workload) == (Kind.DELIVERED, "payments.shop")


def test_rejected_objects_are_reported_and_left_out():
    found = written(WORKLOADS.replace("port: 80,", "port: eighty,"))
    assert [problem.where.object for problem in found.problems] == ["Service shop/payments"]
    assert asked(Stage(found.mesh), "orders").kind is Kind.FAILED


def test_running_pods_replace_generated_ones():
    pod = Instance("payments-x", "shop", ("10.244.9.9",), (("app", "payments"),), meshed=True)
    from weft.model.names import ObjectKey

    documents = read_documents(WORKLOADS.encode(), "mesh.yaml").documents
    found = written_mesh(documents, running=[(ObjectKey("Pod", "shop", "payments-x"), (pod,))])
    assert {"payments-x", "orders-0"} <= {each.name for each in pods(found.mesh)}
    assert "payments" not in {each.name for each in pods(found.mesh)}
