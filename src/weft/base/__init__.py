"""The ground floor: problems, back-off, suggestions, logging. Nothing here knows a mesh word."""
