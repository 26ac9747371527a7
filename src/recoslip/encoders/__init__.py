"""Columns of a table -> features: fitted once, saved with the model; the same rows give the same numbers for ever."""
