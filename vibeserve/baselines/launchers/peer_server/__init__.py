"""A completions server around a library that has none: `python -m peer_server.NAME`, in the peer's own environment.

Nothing of `vibeserve` is imported: the wall hides it, as it does from any server.
"""
