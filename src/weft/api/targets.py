"""Reads the `targetRefs` of a policy: the gateways of the Gateway API that it applies to, instead of workloads with
certain labels."""

from __future__ import annotations

from weft.api.reader import Fields

GATEWAY = "Gateway"
_GROUPS = {
    GATEWAY: "gateway.networking.k8s.io",
    "GatewayClass": "gateway.networking.k8s.io",
    "Service": "",
    "ServiceEntry": "networking.istio.io",
}


def read_targets(spec: Fields) -> tuple[str, ...]:
    """Return the targets of a policy, each as `KIND NAME`. Policies for Services are enforced by waypoints, which weft
    does not have. They are an error, so that no author believes that they are enforced."""
    single = spec.fields("targetRef")
    targets = []
    for target in (*([single] if single else []), *spec.items("targetRefs")):
        kind = target.choice("kind", _GROUPS)
        name = target.text("name", required=True, most=253)
        target.refused("sectionName", "`sectionName` is not supported: a policy applies to a whole gateway")
        target.refused("namespace", "`namespace` is not supported: a policy applies to a gateway of its own namespace")
        group = target.text("group", most=253)
        if group not in (_GROUPS.get(kind, group), "core"):
            target.error("group", f"{kind} is of the group `{_GROUPS[kind]}`, not `{group}`")
        targets.append(
            f"{kind or GATEWAY} {name}"
        )  # a misspelled kind is reported already; assume a gateway, so that the policy fails closed
    unenforced = [each for each in targets if not each.startswith(f"{GATEWAY} ")]
    if unenforced:
        what = (
            f"this policy is bound to {', '.join(unenforced[:3])} by `targetRefs`, and this version of weft runs no "
            "waypoints: the policy is NOT enforced"
        )
        spec.error(
            "targetRefs" if spec.has("targetRefs") else "targetRef", what, "use a `selector` to bind it to workloads"
        )
    if targets and spec.has("selector"):
        spec.error("selector", "only one of `selector` and `targetRefs` may be set")
    return tuple(targets)


def reaches_gateways(targets: tuple[str, ...]) -> bool:
    return any(each.startswith(f"{GATEWAY} ") for each in targets)
