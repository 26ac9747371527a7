"""Tables or a graph -> Result: the only code that knows the order of the steps."""
