"""How a command reaches a mesh: on this machine, on a cluster, or a `weft control`."""
