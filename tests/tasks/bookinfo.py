"""The applications of Istio's samples, as far as the tasks need them: Bookinfo's services with their versions, httpbin,
tcp-echo, and a client without a role of its own (the samples' `curl` or `sleep`)."""

from __future__ import annotations

from collections import Counter

import yaml

from e2e.objects import http_service, service, text, workload

NAMESPACE = "shop"


def applications(control):
    """Files of a mesh with these applications."""
    versions = {"productpage": ("v1",), "details": ("v1",), "reviews": ("v1", "v2", "v3"), "ratings": ("v1",)}
    return {
        "client.yaml": text(workload("curl", control=control)),
        "bookinfo.yaml": text(
            *(
                workload(f"{name}-{version}", control=control, serve="http=8080", app=name, version=version)
                for name, known in versions.items()
                for version in known
            ),
            *map(http_service, versions),
        ),
    }


def echo_applications(control):
    """Files with tcp-echo in two versions, and httpbin in two versions."""
    return {
        "echo.yaml": text(
            *(
                workload(f"tcp-echo-{version}", control=control, serve="namer=9000", app="tcp-echo", version=version)
                for version in ("v1", "v2")
            ),
            service("tcp-echo", {"name": "tcp", "port": 9000}),
        ),
        "httpbin.yaml": text(
            *(
                workload(f"httpbin-{version}", control=control, serve="http=8080", app="httpbin", version=version)
                for version in ("v1", "v2")
            ),
            http_service("httpbin"),
        ),
    }


def objects(content):
    """The objects in a text of YAML; each without a namespace is in that of the applications."""
    documents = [document for document in yaml.safe_load_all(content) if document]
    for each in documents:
        each["metadata"].setdefault("namespace", NAMESPACE)
    return documents


async def versions(mesh, url, count=20, who="curl", **arguments):
    """How many of some requests each version of a service has answered; by status where there is no version."""
    answers = await mesh.requests(who, url, count, **arguments)
    return Counter(
        each["body"]["version"] if isinstance(each["body"], dict) else str(each["status"]) for each in answers
    )


SUBSETS = """
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews}
spec:
  host: reviews
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2, labels: {version: v2}}
  - {name: v3, labels: {version: v3}}
"""
