"""Object files: how those of each format are linked, what is read in them, what is checked and edited.

A package per format, each with the same modules: ``format`` (the linker's options, a subclass of
:class:`edgepack.objectfiles.base.ObjectFormat`), ``audit`` (what is wrong with a file, a subclass of
:class:`edgepack.objectfiles.auditor.Auditor`), ``relocatable`` (reads and edits what a compiler writes) and,
of those that a process loads, ``headers`` (whether a library's hold together).
"""
