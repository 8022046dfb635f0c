"""`python -m weft` is `weft`, for places where the script is not on the path."""

from weft.cli.start import main

main()
