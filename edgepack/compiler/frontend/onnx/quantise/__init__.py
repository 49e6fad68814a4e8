"""Makes a quantised ONNX model of a float one, with ONNX Runtime's quantiser.

``command.py`` is the entrance. ``float_model.py`` prepares the float model, ``written_out.py`` folds batch
normalisations that are written out, ``samples.py`` reads the
calibration data, ``structure.py`` says which nodes and tensors become integers, ``ranges.py`` which ranges
these have, ``kept_scales.py`` those of an older model in their place, ``quantiser.py`` asks ONNX Runtime's
quantiser for them, ``comparison.py`` runs both models side by side, ``sensitivity.py`` leaves layers float
until the outputs are near enough.
"""
