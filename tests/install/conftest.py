"""A real API server with weft's objects, for tests of its validation and defaults."""

import json
from urllib.parse import quote

import pytest
from tools.kube.api_server import RequestFailed

from eventually import eventually_blocking
from weft.install.manifests import manifests
from weft.install.values import Values
from weft.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, known

APPLY = "application/apply-patch+yaml"


class Judge:
    def __init__(self, server):
        self.server = server

    def apply(self, manifest, *, dry_run=False):
        """Apply an object by server-side apply; return the stored object."""
        metadata = manifest["metadata"]
        resource = known(manifest["apiVersion"], manifest["kind"])
        query = f"?fieldManager=test&force=true{'&dryRun=All' if dry_run else ''}"
        path = resource.path(metadata.get("namespace", ""), metadata["name"]) + query
        return self.server.request("PATCH", path, json.loads(json.dumps(manifest)), kind=APPLY)

    def create(self, path, manifest):
        """Create an object as a dry run; return the object that would be stored."""
        return self.server.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", manifest)

    def refusal(self, path, manifest):
        with pytest.raises(RequestFailed) as failed:
            self.create(path, manifest)
        return str(failed.value)

    def may(self, user, verb, resource, *, group="", namespace="", name="", subresource="", fields=""):
        attributes = {
            "verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name,
            "subresource": subresource,
        }  # fmt: skip
        review = {"spec": {"user": user, "groups": ["system:authenticated"], "resourceAttributes": attributes}}
        answer = self.server.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return answer["status"]["allowed"]

    def remove(self, resource, name, namespace=""):
        try:
            self.server.request("DELETE", resource.path(namespace, quote(name)))
        except RequestFailed as failed:
            if failed.status != 404:
                raise


@pytest.fixture(scope="module")
def judge(own_api_server):
    """The API server with all objects of the default revision except its webhooks, which nothing would answer."""
    found = Judge(own_api_server)
    eventually_blocking(
        lambda: own_api_server.request("GET", CUSTOM_RESOURCE_DEFINITIONS.path())["items"],
        lambda items: not any("deletionTimestamp" in each["metadata"] for each in items),
        limit=90,
        every=0.1,
        what="what other tests have removed to be gone",
    )
    for manifest in manifests(Values()):
        if "Webhook" not in manifest["kind"]:
            found.apply(manifest)
    return found
