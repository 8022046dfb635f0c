"""A mesh with an example of everything that a proxy can have, and the commands that inspect it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from e2e.mesh import Mesh
from e2e.objects import destination_rule, http_service, istio, service, text, to, virtual_service, workload


def files(control: Path) -> dict[str, str]:
    matches = [{"uri": {"prefix": "/old"}}, {"uri": {"exact": "/one"}}, {"uri": {"regex": "/v[0-9]+/.*"}}]
    entry = {
        "hosts": ["bank.example.com"],
        "ports": [{"number": 443, "name": "tls", "protocol": "TLS"}],
        "resolution": "STATIC",
        "location": "MESH_EXTERNAL",
        "endpoints": [{"address": "192.0.2.7"}],
    }
    guard = {"selector": {"matchLabels": {"app": "app"}}, "rules": [{"to": [{"operation": {"paths": ["/*"]}}]}]}
    return {
        "client.yaml": text(workload("client", control=control, replicas=2)),
        "app.yaml": text(
            workload("app-v1", control=control, serve="http=8080", app="app", version="v1"),
            workload("app-v2", control=control, serve="http=8080", app="app", version="v2"),
            http_service("app"),
            destination_rule("app", "v1", "v2"),
            virtual_service("app", {"match": matches, "route": [to("app", "v2")]}, {"route": [to("app", "v1")]}),
            {
                "apiVersion": "security.istio.io/v1",
                "kind": "AuthorizationPolicy",
                "metadata": {"name": "guard", "namespace": "shop"},
                "spec": guard,
            },
        ),
        "tcp.yaml": text(
            workload("ledger", control=control, serve="echo=9000"),
            service("ledger", {"name": "tcp", "port": 7000, "targetPort": 9000}),
            service("unnamed", {"port": 7001, "targetPort": 9000}, selector={"app": "ledger"}),
            service(
                "headless",
                {"name": "tcp", "port": 7002, "targetPort": 9000},
                clusterIP="None",
                selector={"app": "ledger"},
            ),
        ),
        "bank.yaml": text(istio("ServiceEntry", "bank", entry)),
    }


async def weft(*arguments: str, code: int | None = 0, both: bool = False) -> str:
    """Run a command as a user does, while the mesh runs; returns its stdout, with `both` also its stderr. A code of
    None accepts any exit code."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "weft.cli", *arguments]
    done = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert code in (None, done.returncode), done.stdout + done.stderr
    if both:
        return done.stdout + done.stderr
    return done.stderr if code else done.stdout


async def envoy(mesh: Mesh, workload: str, path: str) -> Any:
    """The response of Envoy's admin API, requested inside the pod: the reference for comparisons."""
    return (await mesh.get(workload, f"http://127.0.0.1:15000{path}"))["body"]


async def cluster(mesh: Mesh, workload: str, name: str) -> Any:
    """A cluster as Envoy has it, by its name."""
    path = f"/config_dump?resource=dynamic_active_clusters&name_regex={quote(f'^{re.escape(name)}$')}"
    (found,) = (await envoy(mesh, workload, path))["configs"]
    return found["cluster"]


TITLES = (
    "ADDRESSES|PORT|MATCH|DESTINATION RULE|DESTINATION|VHOST NAME|DOMAINS|VIRTUAL SERVICE|SERVICE FQDN|SUBSET|DIRECTION|"
    "RESOURCE NAME|VALID CERT|SERIAL NUMBER|NOT AFTER|NOT BEFORE|TRUST DOMAIN|OUTLIER CHECK|ENDPOINT|STATUS|CLUSTER|"
    "LOCALITY|TYPE|NAME"
)


def rows(shown: str) -> list[list[str]]:
    """The cells of a table: columns start where their headings do."""
    head, *lines = shown.splitlines()
    starts = [match.start() for match in re.finditer(TITLES, head)]
    ends = [*starts[1:], None]
    return [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in (head, *lines)]


def cells(shown: str) -> list[list[str]]:
    return rows(shown)[1:]


def parsed(shown: str) -> Any:
    return json.loads(shown)
