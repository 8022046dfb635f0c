"""`weft audit`: the command, and what it reads from a mesh on this machine or from a cluster."""
