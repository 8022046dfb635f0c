"""Meshes written as YAML in a test, and what the analysis says of them."""

from textwrap import dedent

import msgspec

from weft.analyze.facts import facts_of
from weft.analyze.findings import findings
from weft.api.parse import parse
from weft.files.documents import read_documents
from weft.model.settings import Settings

# The service `web` in namespace `shop`, with two versions behind it.
WEB = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: web-v1, namespace: shop, labels: {app: web, version: v1}}
spec: {command: [sleep, infinity], ports: [{name: http, port: 8080}]}
---
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: web-v2, namespace: shop, labels: {app: web, version: v2}}
spec: {command: [sleep, infinity], ports: [{name: http, port: 8080}]}
"""


def istio(kind, spec, name="x", namespace="shop"):
    return (
        f"---\napiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\n"
        f"spec: {spec}\n"
    )


def facts(text):
    reading = read_documents(dedent(text).encode(), "mesh.yaml")
    assert reading.problems == ()
    values = [parse(document).values for document in reading.documents]
    assert all(values), "an object was refused"
    settings = next((value for held in values for value in held if isinstance(value, Settings)), Settings())
    return facts_of(settings, values)


def said(text):
    """What is found, each as `OBJECT: FIELD: warning: …`, without the code."""
    found = (msgspec.structs.replace(problem, code="") for problem in findings(facts(text)))
    return [str(problem).partition(": ")[2] for problem in found]
