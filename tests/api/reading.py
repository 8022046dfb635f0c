"""Objects written as YAML in a test, read as the product reads them."""

from textwrap import dedent

from weft.api.document import Document
from weft.api.kinds import key_kind
from weft.api.parse import CLUSTER_SCOPED, Parsed, parse
from weft.api.yaml_text import compose
from weft.model.names import ObjectKey


def document(text, file="shop.yaml", directory="/meshes/shop"):
    composed = compose(dedent(text).lstrip("\n"))
    body = composed.value
    metadata = body.get("metadata") or {}
    namespace = "" if body["kind"] in CLUSTER_SCOPED else metadata.get("namespace", "shop")
    key = ObjectKey(key_kind(body["apiVersion"], body["kind"]), namespace, str(metadata.get("name", "")))
    return Document(key, body["apiVersion"], body, file, directory, composed.line, composed.lines)


def istio(kind, spec, name="x"):
    return (
        f"apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: shop}}\nspec:\n"
        + "\n".join(f"  {line}" for line in dedent(spec).strip("\n").split("\n"))
    )


def read(text) -> Parsed:
    return parse(document(text))


def value(text):
    parsed = read(text)
    assert [str(problem) for problem in parsed.problems if problem.severity == "error"] == []
    assert len(parsed.values) == 1
    return parsed.values[0]


def told(text):
    """The problems as `LINE what (hint)`, warnings marked."""
    parsed = read(text)
    failed = any(problem.severity == "error" for problem in parsed.problems)
    assert not (failed and parsed.values), "an object with an error must be refused whole"
    return [
        f"{problem.where.line} {'warning: ' if problem.severity == 'warning' else ''}{problem.what}"
        + (f" ({problem.hint})" if problem.hint else "")
        for problem in parsed.problems
    ]
