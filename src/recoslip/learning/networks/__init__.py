"""Methods that train networks, and how many networks train together. This folder alone imports PyTorch."""
