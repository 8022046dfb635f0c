"""Shell completion of arguments: names of meshes, pods, services, namespaces, and of a proxy's resources. Each function
returns the candidates for the word typed so far; `cli/parts/completion.py` limits the time.

Rule: if the mesh, cluster or proxy cannot be queried, there are no candidates and no error is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click

    from weft.cli.reach.interface import MeshReach

_WORKLOADS = ("deploy", "deployment", "sts", "statefulset", "ds", "daemonset")  # kinds whose names can be listed
_LEVELS = ("trace", "debug", "info", "warning", "error", "critical", "off")


def meshes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    def found() -> list[str]:
        from weft.cli.reach.choose import running_meshes

        return running_meshes()

    return _beginning(incomplete, _quietly(found))


def pods(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of pods and workloads, also in the form deploy/NAME."""
    kind, slash, _ = incomplete.partition("/")
    if slash:
        if kind.lower() not in _WORKLOADS:
            return []
        return _beginning(incomplete, [f"{kind}/{name}" for name in _names(context, kind.lower())])
    return _beginning(incomplete, [*_names(context, "pod"), "deploy/"])


def described(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a pod or of a service, depending on the kind (`pod` or `svc`) typed before it."""
    kind = str(context.params.get("kind") or "pod")
    named = services if kind.startswith(("svc", "service")) else pods
    return named(context, parameter, incomplete)


def services(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return _beginning(incomplete, _names(context, "service"))


def namespaces(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return _beginning(incomplete, _names(context, "namespace"))


def contexts(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    def found() -> list[str]:
        from weft.kube.config import contexts as listed

        return listed(context.params.get("kubeconfig"))

    return _beginning(incomplete, _quietly(found))


def clusters(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of Envoy clusters, from the config of the proxy that the command line names."""
    return _beginning(incomplete, _of_proxy(context, _cluster_names))


def hosts(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    named = [name.split("|") for name in _of_proxy(context, _cluster_names)]
    return _beginning(incomplete, [parts[3] for parts in named if len(parts) == 4 and parts[3]])


def routes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return _beginning(incomplete, _of_proxy(context, _route_names))


def resources(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    def found(admin: Callable[..., bytes]) -> list[str]:
        return [*_listener_names(admin), *_route_names(admin), *_cluster_names(admin)]

    return _beginning(incomplete, _of_proxy(context, found))


def levels(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the last log level of a list such as `rbac:debug,info`, and keep the text before it."""
    before = incomplete[: max(incomplete.rfind(each) for each in ":,") + 1]
    return _beginning(incomplete, [before + level for level in _LEVELS])


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _quietly(ask: Callable[[], list[str]]) -> list[str]:
    with suppress(Exception), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        return ask()
    return []


def _names_from(context: click.Context, question: Callable[[MeshReach], list[str]]) -> list[str]:
    """Return the names that `question` reads from the mesh that the flags typed so far select. Return an empty list if
    the mesh cannot be queried."""

    def ask() -> list[str]:
        from weft.cli.reach.connect import reach

        flags = {name: context.params[name] for name in ("kubeconfig", "context") if context.params.get(name)}
        kubernetes = bool(context.params.get("kubernetes"))
        with closing(reach(context.params.get("mesh"), kubernetes=kubernetes, **flags)) as reached:
            return question(reached)

    return _quietly(ask)


def _names(context: click.Context, kind: str) -> list[str]:
    namespace = str(context.params.get("namespace") or "")
    return _names_from(context, lambda reached: reached.names(kind, namespace))


def _of_proxy(context: click.Context, question: Callable[[Callable[..., bytes]], list[str]]) -> list[str]:
    given: dict[str, Any] = context.params
    # While an option has no value yet, click cannot assign the arguments to parameters. They are all in `context.args`.
    word = given.get("target") or given.get("proxy") or next(iter(context.args), "")
    if not word:
        return []

    def ask(reached: MeshReach) -> list[str]:
        from functools import partial

        proxy = reached.find(str(word), str(given.get("namespace") or ""))
        return question(partial(reached.admin, proxy))

    return _names_from(context, ask)


def _cluster_names(admin: Callable[..., bytes]) -> list[str]:
    from weft.envoy.dump import items, read, text

    return [
        text(each, "name") for each in items(read(admin("/clusters", {"format": "json"})).document, "cluster_statuses")
    ]


def _route_names(admin: Callable[..., bytes]) -> list[str]:
    from weft.envoy.dump import MASKS, ROUTES, read, text
    from weft.envoy.dump_routes import routes as found

    return [text(each, "name") for each in found(read(admin("/config_dump", {"mask": MASKS[ROUTES]})), "")]


def _listener_names(admin: Callable[..., bytes]) -> list[str]:
    from weft.envoy.dump import LISTENERS, MASKS, read, text
    from weft.envoy.dump_listeners import listeners as found

    return [text(each, "name") for each in found(read(admin("/config_dump", {"mask": MASKS[LISTENERS]})))]
