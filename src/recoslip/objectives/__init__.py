"""One equation, one pure function."""
