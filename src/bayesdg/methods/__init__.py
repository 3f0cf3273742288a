"""Methods as values; imports no torch."""

from bayesdg.methods.rows import METHODS, Layer, Method, get_method

__all__ = ["METHODS", "Layer", "Method", "get_method"]
