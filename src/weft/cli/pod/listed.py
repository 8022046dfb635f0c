"""The commands that run inside pods, each with its line of help. Each command is a module of this package with a
function `run`, which takes the arguments and returns the exit code."""

from __future__ import annotations

from importlib import import_module

IN_PODS = {
    "iptables": "In an init container: redirect the pod's traffic to its proxy. Takes Istio's arguments.",
    "redirect": "Like iptables, for a pod that may not change its own network: the node's agent installs the redirect.",
    "drain": "In a sidecar, before it stops: send callers to other pods and wait for requests in progress.",
    "clean": "In a pod of weft uninstall: remove the agent's directories from its node.",
    "wait": "In a sidecar, after it has started: wait until it is ready.",
}


def run(name: str, arguments: list[str]) -> int:
    status: int = import_module(f"weft.cli.pod.{name}").run(arguments)
    return status
