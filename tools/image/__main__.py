"""The program of `make image`: `python -m tools.image`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.image import OUTPUT, ImageError, build, trees


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.image", description="Build weft's image without Docker.")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="tar file to write (default: %(default)s)")
    parser.add_argument("--name", default="", help="full name of the image (default: docker.io/library/weft:VERSION)")
    parser.add_argument(
        "--trees", type=Path, help="write the layers as directories below this directory instead, for a Dockerfile"
    )
    arguments = parser.parse_args()
    try:
        if arguments.trees:
            print(*trees(arguments.trees), sep="\n")
        else:
            output = build(arguments.output, name=arguments.name)
            print(f"{output}: {output.stat().st_size / 1e6:.0f} MB")
            print(f"hint: ctr -n k8s.io images import {output}", file=sys.stderr)
    except ImageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
