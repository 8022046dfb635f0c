"""Flags that several commands share, their values, and shell completion of those values."""
