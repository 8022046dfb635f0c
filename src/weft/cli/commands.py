"""The list of commands: what a person wants, the commands for that, each with its line of help and where it lives.

A command's own module is read only when it is called: `weft --help` needs none of them.
"""

from __future__ import annotations

import typer

from weft.cli.lazy_commands import Command
from weft.cli.start import IN_PODS, run

_AS_IT_COMES = {"ignore_unknown_options": True, "allow_extra_args": True}

COMMANDS: dict[str, tuple[Command, ...]] = {
    "A mesh on this machine": (
        Command("demo", "run.demo:demo", "Run the example shop and watch its traffic."),
        Command("up", "run.up:up", "Run the mesh of a directory."),
        Command("down", "run.down:down", "End a mesh: its pods, proxies, namespaces and files."),
        Command("ps", "run.ps:ps", "List the pods that run, of every mesh on this machine."),
        Command("status", "run.status:status", "Show workloads, traffic and problems."),
        Command("logs", "run.logs:logs", "Print what a workload or pod has printed."),
        Command(
            "exec",
            "run.exec:exec_",
            "Run a command in a pod.",
            {"ignore_unknown_options": True, "allow_interspersed_args": False},
        ),
    ),
    "YAML before it runs": (
        Command("validate", "files.validate:validate", "Check YAML files, and that what they refer to is there."),
        Command("analyze", "files.analyze:analyze", "Find what does not fit together, in files or in a mesh."),
        Command("test", "files.test:test", "Test what requests are expected to do."),
        Command("diff", "files.diff:diff", "Show what a change would change, before it is applied."),
        Command("kube-inject", "files.kube_inject:kube_inject", "Put the proxy into the pods of workloads in files."),
        Command(
            "kube-export", "files.kube_export:kube_export", "Print a mesh of this machine as objects of a cluster."
        ),
    ),
    "Look inside": (
        Command("authn", "look.authn:GROUP", "Mutual TLS: whether callers and servers agree."),
        Command("check-inject", "look.check_inject.command:check_inject", "Show which webhook injects a pod, and why."),
        Command("describe", "look.describe:describe", "Describe a pod or a service in plain English."),
        Command("audit", "look.audit.command:audit", "Look a whole mesh over for what should be acted upon."),
        Command(
            "bug-report",
            "look.bug_report.command:bug_report",
            "Collect what is needed to see what is wrong, without secrets.",
        ),
        Command("why", "look.why:why", "Show which objects and rules made a resource of a proxy."),
        Command("explain", "look.explain:explain", "Explain what would happen to a request."),
        Command("bisect", "look.bisect:bisect", "Find the change after which a request ended otherwise."),
        Command("history", "look.history:history", "Show what has changed in a mesh, and when."),
        Command("proxy-config", "look.proxy_config.tables:GROUP", "Show what a pod's Envoy has."),
        Command("pc", "look.proxy_config.tables:GROUP", "The same.", hidden=True),
        Command(
            "proxy-status", "look.proxy_status:proxy_status", "Show how far each proxy is, or what differs at one."
        ),
        Command("x", "look.experimental:GROUP", "Commands that may still change."),
    ),
    "A mesh on Kubernetes": (
        Command(
            "install", "install.install:install", "Install weft on a Kubernetes cluster, or change what is installed."
        ),
        Command("upgrade", "install.upgrade:upgrade", "Show who uses which revision, and move namespaces to another."),
        Command("uninstall", "install.uninstall:uninstall", "Remove weft from a cluster."),
        Command("manifest", "install.manifest:GROUP", "What an installation is made of: its objects, its values."),
        Command(
            "crds", "install.crds:crds", "Print the CustomResourceDefinitions of the kinds that weft reads, as YAML."
        ),
    ),
    "The parts by themselves": (
        Command("control", "parts.control:control", "Serve xDS from a directory of YAML, and sign certificates."),
        Command("node", "parts.node:node", "Give every workload of this machine its identity."),
        Command("ca", "parts.ca:GROUP", "The certificate authority: look at it, give it a new root."),
        Command(
            "interception",
            "parts.interception:interception",
            "Print the iptables rules of a pod.",
            {**_AS_IT_COMES, "help_option_names": ["--help"]},
        ),
        Command(
            "version", "parts.version:version", "Print the versions of the command, the control plane and the proxies."
        ),
        Command(
            "completion",
            "parts.completion:completion",
            "Print what a shell reads to complete commands, flags and names.",
        ),
    ),
    # Usually not even started by way of this list; hidden, because nobody types them.
    "In pods": tuple(
        Command(name, "commands:in_pod", line, _AS_IT_COMES, hidden=True) for name, line in IN_PODS.items()
    ),
}


def by_name() -> dict[str, Command]:
    return {command.name: command for commands in COMMANDS.values() for command in commands}


def in_pod(context: typer.Context) -> None:
    raise typer.Exit(run(context.info_name or "", context.args))
