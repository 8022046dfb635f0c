"""Connections of a command to a mesh on this machine, to the mesh of a cluster, or to a `weft control`."""
