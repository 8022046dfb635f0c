"""The Gateway API's objects as text, for tests of their readers."""

from textwrap import dedent


def standard(kind, spec, version="v1", name="x"):
    head = f"apiVersion: gateway.networking.k8s.io/{version}\nkind: {kind}\n"
    body = "\n".join(f"  {line}" for line in dedent(spec).strip("\n").split("\n"))
    return f"{head}metadata: {{name: {name}, namespace: shop}}\nspec:\n{body}"


def http_route(rule, parents='[{group: "", kind: Service, name: web}]'):
    """One rule; it begins on line 7."""
    lines = dedent(rule).strip("\n").split("\n")
    return standard("HTTPRoute", f"parentRefs: {parents}\nrules:\n" + "\n".join(f"  {line}" for line in lines))
