"""The objects of the mesh as frozen values. Pure: no module here reads a file, a socket or the clock."""
