"""edgepack's version; the package's metadata are made from this file."""

__all__ = ["__version__"]

__version__ = "0.1.0"
