"""Tables -> a folder of memory-mapped arrays -> a NodeGraph that may be larger than memory."""

from recoslip.packed.reader import open_packed
from recoslip.packed.writer import pack

__all__ = ["open_packed", "pack"]
