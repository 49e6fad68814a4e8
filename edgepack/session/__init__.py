"""Runs a bundle in this process: its shared library through its C ABI, numpy arrays in and out."""

from edgepack.session.session import Session

__all__ = ["Session"]
