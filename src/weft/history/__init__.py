"""The history of a mesh: its changes in memory, and the journal that stores them on disk."""
