"""Documents to model values, one file per kind; what is wrong becomes problems. Past this room no value is wrong."""
