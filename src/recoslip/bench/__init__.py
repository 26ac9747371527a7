"""Datasets x splits x methods x seeds -> records on disk -> the paper's tables and figures, and those of the user."""
