"""The past of a mesh: its changes in memory, and the journal that keeps them on disk."""
