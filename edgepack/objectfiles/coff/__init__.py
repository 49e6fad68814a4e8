"""COFF and PE files: Windows."""
