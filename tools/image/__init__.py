"""weft's image, built without Docker and without root: control plane, node agent, interception and Envoy in one.

Three layers, the one that changes least below: Debian with Python and iptables; the Python packages, Envoy among them;
weft itself. Each is kept in a cache under a key of what goes into it. The rule: the same input makes the same bytes.
"""

from __future__ import annotations

from tools.image.build import OUTPUT, build, default_cache, trees
from tools.image.error import ImageError
from tools.image.oci import unpack

__all__ = ["OUTPUT", "ImageError", "build", "default_cache", "trees", "unpack"]
