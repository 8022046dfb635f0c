"""A mesh on one machine: the engine behind `weft up`, and the client and server of the mesh's Unix socket."""
