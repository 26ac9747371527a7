"""What the commands have in common: messages, the progress display, and the values of options."""
