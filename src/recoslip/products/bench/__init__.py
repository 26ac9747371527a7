"""Datasets x splits x methods x seeds -> records on disk -> tables of the methods compared."""
