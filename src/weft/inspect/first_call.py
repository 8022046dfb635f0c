"""The config that an on-demand proxy would have after a first call: its current config, and everything that it would
get for the called hosts.

Input: a running control plane, a pod, and the called hosts. Output: a stage in which the proxy has this config.
Rule: nothing is recorded; the control plane's own record of calls does not change.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.base.problem import Problem, Where
from weft.base.suggest import did_you_mean
from weft.control.plane import ControlPlane
from weft.inspect.stage import Stage
from weft.model.group import Group

_LIST = "list what the pod may call: weft proxy-config clusters POD --all"


class NotCallable(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.what)
        self.problem = problem


def after_first_call(plane: ControlPlane, stage: Stage, proxy: str, hosts: Iterable[str]) -> Stage:
    """Return a stage in which `proxy`, a pod's name in `stage`, has called `hosts`, or, if `hosts` is empty, all hosts
    that it may call. Raises NotCallable if the proxy may not see one of the hosts, or if there is no such host."""
    group = stage.group(proxy)
    called = [_host(stage, group, host) for host in hosts] or sorted(_callable(stage, group))
    calls = plane.calls.copy()
    calls.add(group, hosts=called)
    return Stage(plane.mesh, listening=plane.listening, calls=calls)


def _host(stage: Stage, group: Group, word: str) -> str:
    service, scope = stage.service(word, group.namespace), stage.mesh.scope(group)
    host = service.host if service is not None else word
    if stage.mesh.service(host, scope) is not None or stage.mesh.virtual_services(host, scope):
        return host
    if service is not None:
        sidecar = stage.mesh.sidecar(group)
        cause = f"Sidecar {sidecar.namespace}/{sidecar.name} does not include it" if sidecar else "it is not exported"
        raise NotCallable(Problem(Where(), f"the proxy never gets {host}: {cause}", _LIST))
    known = _callable(stage, group)
    names = known if "." in word else {host.partition(".")[0] for host in known}
    hint = did_you_mean(word, names) or _LIST
    raise NotCallable(Problem(Where(), f"there is no service `{word}`", hint))


def _callable(stage: Stage, group: Group) -> set[str]:
    scope = stage.mesh.scope(group)
    return {host for host in stage.mesh.hosts() if stage.mesh.service(host, scope) is not None}
