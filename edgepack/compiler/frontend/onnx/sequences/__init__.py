"""Lists of tensors (ONNX's sequences) and optional values, taken out of a model: which tensors a list has is
known when the model is packed.

A graph is followed node by node (``expand.py``). Of each list it is known which tensors it has
(``values.py``): names, or parts of a tensor along an axis, as SplitToSequence makes them, which become a
Split, a Slice or a Gather only where one is read (``scope.py``). ``operators.py`` has what each operator
makes of lists, ``joining.py`` a list as one tensor, ``positions.py`` elements that a run chooses,
``branches.py``, ``loops.py`` and ``maps.py`` what lists become in Ifs, Loops and SequenceMaps, ``outputs.py``
outputs that are lists. What is not known yet may be when constants have been folded: then the graph is
followed again.
"""
