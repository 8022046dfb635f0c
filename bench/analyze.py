"""Measures how long `weft analyze` takes for a mesh of ten thousand objects: to read the YAML, to run all checks,
and as a whole command.

One service in a hundred has a VirtualService with a misspelled destination, so that the time includes reporting
errors and searching for similar names. The rig fails if the number of findings is not the expected one. All times
are CPU time, so that other processes on the machine have little influence.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from bench.figure import Effort, Figure, Say
from bench.process import Failed
from weft.cli.read.mesh_files import FileAdmission, meshes_in
from weft.inspect.rehearse.examination import examine

_OBJECTS, _QUICK = 10_000, 1_000
_PER_NAMESPACE = 10
_WRONG = 100  # for one in this many services, the VirtualService has a misspelled destination
_KINDS = 5  # objects per service


def run(effort: Effort, say: Say) -> list[Figure]:
    services = effort.of(_OBJECTS, _QUICK) // _KINDS
    with tempfile.TemporaryDirectory() as directory:
        for number in range(services // _PER_NAMESPACE):
            (Path(directory) / f"team-{number}.yaml").write_text("\n---\n".join(objects(number)))
        began = time.process_time()
        ((documents, flaws, _),) = meshes_in([Path(directory)])
        read = time.process_time() - began
        began = time.process_time()
        examined = examine(documents, admit=FileAdmission())
        checked = time.process_time() - began
        say(f"{len(documents)} objects: read in {read:.1f} s, checked in {checked:.1f} s")
        expected = sum(number % _WRONG == 0 for number in range(services))
        codes = [problem.code for problem in examined.problems]
        if flaws or codes.count("WFT0104") != expected or set(codes) != {"WFT0104"}:
            raise Failed(f"expected {expected} findings of WFT0104, got {len(codes)} findings: {sorted(set(codes))}")
        whole = _command(directory)
    size = f"{len(documents):,} objects"
    return [
        Figure(f"analyze {size}: all checks", checked, "CPU s", 10),
        Figure(f"analyze {size}: reading the YAML", read, "CPU s"),
        Figure(f"analyze {size}: the command, from start to end", whole, "CPU s", 15),
    ]


def objects(team: int) -> Iterator[str]:
    """Yield the YAML of all objects of one namespace. Each service has a Service, a Workload, a VirtualService, a
    DestinationRule and an AuthorizationPolicy."""
    for each in range(_PER_NAMESPACE):
        number = team * _PER_NAMESPACE + each
        name, place = f"service-{each}", f"team-{team}"
        metadata = {"name": name, "namespace": place}
        labels = {"app": name, "version": "v1"}
        goal = f"srvice-{each}" if number % _WRONG == 0 else name
        yield _object("v1", "Service", metadata, {"selector": {"app": name}, "ports": [{"name": "http", "port": 80}]})
        yield _object(
            "weft.dev/v1alpha1",
            "Workload",
            {**metadata, "labels": labels},
            {"command": ["sleep", "infinity"], "serviceAccount": name, "ports": [{"name": "http", "port": 80}]},
        )
        yield _object(
            "networking.istio.io/v1",
            "VirtualService",
            metadata,
            {
                "hosts": [name],
                "http": [
                    {
                        "match": [{"uri": {"prefix": "/v1"}}],
                        "route": [{"destination": {"host": goal}}],
                        "timeout": "2s",
                    },
                    {"route": [{"destination": {"host": name, "subset": "v1"}}]},
                ],
            },
        )
        yield _object(
            "networking.istio.io/v1",
            "DestinationRule",
            metadata,
            {"host": name, "subsets": [{"name": "v1", "labels": {"version": "v1"}}]},
        )
        caller = f"cluster.local/ns/{place}/sa/service-{(each + 1) % _PER_NAMESPACE}"
        yield _object(
            "security.istio.io/v1",
            "AuthorizationPolicy",
            metadata,
            {"selector": {"matchLabels": {"app": name}}, "rules": [{"from": [{"source": {"principals": [caller]}}]}]},
        )


def _object(version: str, kind: str, metadata: Mapping[str, object], spec: Mapping[str, object]) -> str:
    """Return the object as YAML. JSON would be valid YAML as well, but users write block YAML, which takes longer to
    parse."""
    body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
    return msgspec.yaml.encode(body).decode()


def _command(directory: str) -> float:
    """Run `weft analyze` as a command on the directory and return its CPU seconds: start of Python, imports, reading
    and checking."""
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "weft.cli", "analyze", directory], capture_output=True, text=True, check=False
    )
    after = os.times()
    if done.returncode != 1:
        raise Failed(f"weft analyze exited with {done.returncode}: {done.stderr[-300:]}")
    return after.children_user + after.children_system - before.children_user - before.children_system
