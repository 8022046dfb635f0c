"""A mesh on one machine: the engine behind `weft up`, and what it answers to those who ask."""
