"""Makes `python -m weft.cli` equivalent to `weft`, for environments where the script is not on the path."""

from weft.cli.start import main

main()
