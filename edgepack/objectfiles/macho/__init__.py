"""Mach-O files: macOS and iOS."""
