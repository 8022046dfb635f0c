"""Objects as a cluster has them, in one line each. What kubelet and the controllers would write is written by hand."""

import json

from weft.install.crds import crds


def service(name, namespace, *ports, selector=None, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            **(
                {"ports": list(ports or [{"name": "http", "port": 80, "targetPort": 8080}])} if ports != (None,) else {}
            ),
            **({"selector": selector if selector is not None else {"app": name}} if selector != {} else {}),
            **spec,
        },
    }


def pod(name, namespace, *addresses, app="", labels=None, annotations=None, proxy=True, ready=True, phase="Running",
        gateway=False, ports=(), node="", account="default", **spec):  # fmt: skip
    containers = [{"name": "app", "image": "app", "ports": [{"name": n, "containerPort": p} for n, p in ports]}]
    if proxy:
        bootstrap = json.dumps({"node": {"id": f"{'router' if gateway else 'sidecar'}~$(INSTANCE_IP)~$(POD_NAME)"}})
        containers.append({"name": "istio-proxy", "image": "weft", "args": ["--config-yaml", bootstrap]})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": app or name.rpartition("-")[0], **(labels or {})},
            "annotations": annotations or {},
        },
        "spec": {"containers": containers, "serviceAccountName": account, "nodeName": node, **spec},
        "status": {
            "phase": phase,
            **({"podIP": addresses[0], "podIPs": [{"ip": each} for each in addresses]} if addresses else {}),
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def endpoint(address, pod="", namespace="", ready=True, **conditions):
    target = {"targetRef": {"kind": "Pod", "name": pod, "namespace": namespace}} if pod else {}
    return {"addresses": [address], "conditions": {"ready": ready, **conditions}, **target}


def endpoint_slice(name, namespace, service, *endpoints, ports=(("http", 8080),), family="IPv4", managed=True):
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {
                "kubernetes.io/service-name": service,
                **({"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"} if managed else {}),
            },
        },
        "addressType": family,
        "endpoints": list(endpoints),
        "ports": [{"name": n, "port": p, "protocol": (*rest, "TCP")[0]} for n, p, *rest in ports],
    }


def node(name, **labels):
    region, zone = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
    names = {"region": region, "zone": zone, "subzone": "topology.istio.io/subzone"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {names[each]: value for each, value in labels.items()}},
    }


def virtual_service(name, namespace, host, **spec):
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hosts": [host], "http": [{"route": [{"destination": {"host": host}}]}], **spec},
    }


def definition(kind):
    return next(each for each in crds() if each["spec"]["names"]["kind"] == kind)
