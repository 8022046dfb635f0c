"""Builds weft's container image without Docker and without root. The image contains the control plane, the node
agent, the interception and Envoy.

It has three layers, the least often changed one at the bottom: Debian with Python and iptables; the Python packages,
including Envoy; weft itself. Each layer is cached under a hash of its inputs. The rule: the same input makes the
same bytes.
"""

from __future__ import annotations

from tools.image.build import OUTPUT, build, default_cache, trees
from tools.image.error import ImageError
from tools.image.oci import unpack

__all__ = ["OUTPUT", "ImageError", "build", "default_cache", "trees", "unpack"]
