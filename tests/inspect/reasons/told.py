"""A small mesh from YAML, and the reasons for a part of its proxies' resources."""

from tests.inspect.test_stage import shop

from weft.api.parse import parse
from weft.files.documents import read_documents
from weft.inspect.ask.why import why
from weft.inspect.stage import Stage

SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: payments, namespace: shop}
spec: {clusterIP: 10.96.0.7, selector: {app: payments}, ports: [{name: http, port: 80, targetPort: 8080}]}
"""
CLUSTER = "outbound|80||payments.shop.svc.cluster.local"


def mesh_of(**files):
    """A mesh of these files, named without .yaml."""
    mesh = shop()
    for file, text in {"service": SERVICE, **files}.items():
        for document in read_documents(text.encode(), f"{file}.yaml").documents:
            parsed = parse(document)
            assert parsed.values, parsed.problems
            mesh.apply(document.key, parsed.values)
    return mesh


def rule(spec, name="payments", namespace="shop", kind="DestinationRule", group="networking"):
    metadata = f"{{name: {name}, namespace: {namespace}}}"
    return f"apiVersion: {group}.istio.io/v1\nkind: {kind}\nmetadata: {metadata}\nspec:\n" + "\n".join(
        f"  {line}" for line in spec.strip("\n").splitlines()
    )


def told(mesh, resource, proxy="orders-0.shop", kind=""):
    """The objects of the requested part, and the names of its rules."""
    (found,) = why(mesh, Stage(mesh), proxy, resource, kind)
    part = found.parts[0]
    return part.sources, tuple(each.name for each in part.rules)
