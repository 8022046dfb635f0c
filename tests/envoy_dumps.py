"""Dumps for the tests of their readers, as Envoy writes them."""

import json

from weft.envoy.dump import Dump, read

ADMIN = "type.googleapis.com/envoy.admin.v3"


def dump(**sections) -> Dump:
    """Sections by their short type, such as ClustersConfigDump={…}."""
    configs = [{"@type": f"{ADMIN}.{kind}", **body} for kind, body in sections.items()]
    return read(json.dumps({"configs": configs}).encode())


def cluster(name, **fields):
    return {"cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": name, **fields}}


def made_by(kind, name, namespace="shop"):
    path = f"/apis/networking.istio.io/v1/namespaces/{namespace}/{kind}/{name}"
    return {"metadata": {"filter_metadata": {"istio": {"config": path}}}}
