"""The example shop, and `weft demo --check`, which runs the shop, edits its YAML and checks the responses."""
