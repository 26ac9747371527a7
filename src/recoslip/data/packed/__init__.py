"""Tables -> a folder of memory-mapped arrays -> a NodeGraph that may be larger than memory."""
