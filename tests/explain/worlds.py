"""Small worlds for tests: the workloads of a mesh in YAML, each with all that its proxy would be sent."""

from golden.render import compile_group, load
from weft.explain.world import EnvoyResources, ExplainedWorkload
from weft.model.group import group_of
from weft.model.instance import Instance
from weft.model.workload import Workload as Declared

CALLER = """
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: frontend, namespace: shop, labels: {app: frontend}}
spec: {command: [serve], serviceAccount: frontend}
"""
ORDERS = """
apiVersion: v1
kind: Service
metadata: {name: orders, namespace: shop}
spec:
  selector: {app: orders}
  clusterIP: 10.96.0.1
  ports: [{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 7000}, {name: open, port: 9000}]
---
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: orders, namespace: shop, labels: {app: orders, version: v1}}
spec: {command: [serve], serviceAccount: orders}
"""
LEGACY = """
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: legacy, namespace: shop, labels: {app: legacy, sidecar.istio.io/inject: "false"}}
spec: {command: [serve], serviceAccount: legacy}
"""


class SmallWorld:
    def __init__(self, *texts, bypassed=()):
        mesh, problems = load("\n---\n".join((CALLER, *(texts or (ORDERS,)))))
        self.problems, self.bypassed = problems, set(bypassed)
        self.secretless = {}  # cluster -> why a rule that needs a Secret cannot be used
        self.lacking = {}  # (address, port) -> why the service does not have the port
        self.hidden = {}  # (address, port) -> why the service is not visible
        self.sent = {}  # (address, port) of a service -> the endpoints to which the network forwards
        self.workloads, self.addresses, self.names = {}, {}, {}
        declared = {value.name: value for _, values in mesh.values() for value in values if isinstance(value, Declared)}
        for _, values in mesh.values():
            for value in values:
                if isinstance(value, Instance):
                    owner = declared[value.workload]
                    made = None
                    if value.meshed:
                        found, _ = compile_group(mesh, group_of(owner))
                        made = EnvoyResources(found.listeners, found.routes, found.clusters, found.endpoints)
                    identity = f"spiffe://cluster.local/ns/{value.namespace}/sa/{value.service_account}"
                    workload = ExplainedWorkload(owner.name, value.addresses, identity if made else "", made)
                    self.workloads[owner.name] = workload
                    self.addresses |= dict.fromkeys(value.addresses, workload)
        for service in mesh.services():
            for name in (service.host, service.name, f"{service.name}.{service.namespace}"):
                self.names[name] = service.addresses

    def workload(self, name):
        return self.workloads.get(name)

    def at(self, address):
        return self.addresses.get(address)

    def resolve(self, host, caller, *, by_proxy=False):
        return self.names.get(host, ())

    def behind(self, address, port):
        return self.sent.get((address, port))

    def unseen(self, caller, address, port):
        return self.hidden.get((address, port))

    def uncalled(self, caller, cluster):
        return self.secretless.get(cluster, "")

    def no_port(self, address, port):
        return self.lacking.get((address, port))

    def intercepts(self, workload, address, port, *, inbound):
        return (workload.name, port) not in self.bypassed


def virtual_service(*routes, host="orders"):
    listed = "\n".join(f"    - {route}" for route in routes)
    return f"""
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: {host}, namespace: shop}}
spec:
  hosts: [{host}]
  http:
{listed}
"""


def policy(kind, spec, name="orders", group="security.istio.io"):
    return f"""
apiVersion: {group}/v1
kind: {kind}
metadata: {{name: {name}, namespace: shop}}
spec: {spec}
"""
