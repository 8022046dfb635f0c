"""The mesh as frozen values. Pure: no file, no socket, no clock."""
