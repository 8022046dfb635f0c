"""Connection to a `weft control` on this machine, over the socket that only its owner can open. The control plane
reports which proxies are connected and which config they have. It cannot reach the Envoys' admin interfaces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import msgspec

from weft.base.ambiguous import in_several_namespaces
from weft.base.suggest import did_you_mean
from weft.cli.print.output import fail
from weft.cli.reach.control_directory import PAGES
from weft.cli.reach.interface import PodProxy
from weft.cli.reach.names import service_names, split, within
from weft.local.client import ask_at


class ControlReach:
    runs_pods = False

    def __init__(self, place: Path) -> None:
        self.place = place

    def directory(self) -> Path:
        """Return the directory of the YAML that the control plane serves."""
        return Path(msgspec.json.decode(ask_at(self.place / PAGES, "/serving"))["directory"])

    def find(self, word: str, namespace: str = "") -> PodProxy:
        return self.find_all(word, namespace)[0]

    def find_all(self, word: str, namespace: str = "") -> list[PodProxy]:
        names = self.names()
        known = {name.rpartition(".")[2] for name in names}
        _, name, namespace = split(word, namespace, known=known)
        pods = [PodProxy(*each.rpartition(".")[::2]) for each in names]
        near = [pod for pod in pods if namespace in ("", pod.namespace)]
        # The name of a pod is the name of its workload and a suffix.
        matches = [pod for pod in near if pod.name == name] or [pod for pod in near if pod.name.startswith(f"{name}-")]
        if not matches:
            fail(f"no proxy of `{word}` is connected", did_you_mean(word, names) or "list them: weft proxy-status")
        places = {pod.namespace for pod in matches}
        if len(places) > 1:
            raise in_several_namespaces(name, places)
        return matches

    def find_labelled(self, selector: str, namespace: str = "") -> NoReturn:
        fail("weft control does not know the labels of pods", "name a proxy instead; weft proxy-status lists them")

    def admin(
        self, proxy: PodProxy, path: str, query: Mapping[str, str] | None = None, *, method: str = "GET"
    ) -> NoReturn:
        hint = f"query Envoy on its machine: curl -s localhost:15000{path}; many commands read the output with --file"
        fail(f"weft control cannot reach the Envoy of {proxy}", hint)

    def names(self, kind: str = "pod", namespace: str = "") -> list[str]:
        if kind == "service":
            return service_names(self.ask("registryz"), namespace)
        proxies = [each["proxy"].rpartition(".") for each in msgspec.json.decode(self.ask("syncz"))]
        if kind == "namespace":
            return sorted({place for _, _, place in proxies})
        return within(namespace, [(name, place) for name, _, place in proxies]) if kind == "pod" else []

    def ask(
        self, page: str, query: Mapping[str, str] | None = None, *, replica: str = "", question: bytes = b""
    ) -> bytes:
        return ask_at(self.place / PAGES, f"/debug/{page}", dict(query or {}), question)

    def ask_all(self, page: str, query: Mapping[str, str] | None = None) -> dict[str, bytes]:
        return {"weft": self.ask(page, query)}

    def close(self) -> None:
        """Do nothing: each query has its own connection, closed after the response."""


def only_pods(reached: object, what: str) -> None:
    """End the command if `reached` is a connection to a `weft control`, which runs no pods. `what` is the subject of
    the command in the message, such as `an audit`."""
    if isinstance(reached, ControlReach):
        fail(f"weft control runs no pods, and {what} is about pods", "use this command with weft up or Kubernetes")
