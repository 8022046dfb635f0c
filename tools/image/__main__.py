"""`python -m tools.image`: what `make image` runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.image import OUTPUT, ImageError, build, trees


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.image", description="Build weft's image without Docker.")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the tar to write (default: %(default)s)")
    parser.add_argument("--name", default="", help="the image's full name (default: docker.io/library/weft:VERSION)")
    parser.add_argument("--trees", type=Path, help="write the layers as directories here instead, for a Dockerfile")
    given = parser.parse_args()
    try:
        if given.trees:
            print(*trees(given.trees), sep="\n")
        else:
            output = build(given.output, name=given.name)
            print(f"{output}: {output.stat().st_size / 1e6:.0f} MB")
            print(f"hint: ctr -n k8s.io images import {output}", file=sys.stderr)
    except ImageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
