"""Layer 4: `detect` and `Result`, the only code that knows the order of the steps."""
