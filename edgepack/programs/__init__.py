"""PyTorch's exported programs (``torch.export``): made of modules, made flat, named, saved.

Both sides need it: the process that has a module in memory, and the compiler, which reads the file.
``torch`` is imported in functions only: edgepack is there without it.
"""
