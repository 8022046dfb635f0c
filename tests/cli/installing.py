"""An API server for commands that install: what they leave there is removed after each test."""

import contextlib
import time

from tools.kube.api_server import RequestFailed

from weft.kube.apply import OWNED

LABELS = "?labelSelector=app.kubernetes.io%2Fname%3Dweft"


class Installed:
    """The API server, and the command line that uses it."""

    def __init__(self, server, weft):
        self.server, self._weft = server, weft

    def __call__(self, *arguments, **options):
        return self._weft(*arguments, "--kubeconfig", self.server.kubeconfig, **options)

    def done(self, *arguments):
        ended = self(*arguments)
        assert ended.returncode == 0, ended.stderr
        return ended

    def names(self, resource):
        return {each["metadata"]["name"] for each in self.server.request("GET", resource.path() + LABELS)["items"]}

    def left(self):
        return {name for resource in OWNED for name in self.names(resource)}

    def gone(self, path):
        try:
            self.server.request("GET", path)
        except RequestFailed as failed:
            return failed.status == 404
        return False

    def wait_until(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def clean(self):
        for resource in OWNED:
            for each in self.server.request("GET", resource.path() + LABELS)["items"]:
                metadata = each["metadata"]
                with contextlib.suppress(RequestFailed):
                    self.server.request("DELETE", resource.path(metadata.get("namespace", ""), metadata["name"]))
