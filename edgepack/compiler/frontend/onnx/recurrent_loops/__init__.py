"""Loops and Scans that are recurrent layers: each becomes ONNX's LSTM, GRU or RNN.

``loops.py`` says what a Loop or Scan carries, reads and stacks. A trip is read as formulas (``formulas.py``,
``trip.py``; ``elementwise.py``, ``parts.py``, ``products.py`` and ``one_step.py`` know the operators): what
each value is of the elements of the sequences and of the states before. ``cells.py`` compares the formulas of
the states with those of ONNX's cells, whatever nodes compute them; ``reading.py`` does so until no state is
left, ``layers.py`` and ``rewrite.py`` write what was found.
"""
