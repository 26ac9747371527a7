"""Methods that train networks, and what they share. All of this needs PyTorch, of the extra `networks`."""

from recoslip.base.errors import need

need("torch", "a method that trains networks")
