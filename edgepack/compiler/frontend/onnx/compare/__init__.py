"""Compares two models, or what bundles computed, on the same inputs.

``command.py`` has the worker's two tasks, to draw the inputs and to compare; ``sides.py`` opens the models
and matches inputs and outputs, ``tensors.py`` finds what both compute inside, ``stored.py`` keeps arrays in
files.
"""
