"""The example shop, and the judge behind `weft demo --check`: it runs the shop, edits it and checks what happens."""
