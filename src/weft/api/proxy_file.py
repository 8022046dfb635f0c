"""Reads paths of files in the proxy's file system, such as certificates. A relative path is relative to `/`, as in
Istio, where `/` is the working directory of proxies. Envoy itself gets only absolute paths, because it watches the
directory of the file."""

from __future__ import annotations

from weft.api.reader import Fields


def proxy_file(fields: Fields, name: str, *, required: bool = False) -> str:
    path = fields.text(name, most=4_096, required=required)
    if path.endswith("/"):
        fields.error(
            name, f"`{path[:80]}` is not the path of a file", "use an absolute path in the proxy's file system"
        )
        return ""
    if path and not path.startswith("/"):
        fields.warning(name, f"the relative path `{path[:80]}` is read as /{path[:80]}", "use an absolute path")
        return f"/{path}"
    return path
