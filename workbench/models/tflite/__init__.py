"""TFLite models of one operator, drawn by a seed: ``drawn(kind, seed)`` of :data:`DRAWN`."""

from workbench.models.tflite.drawn import DRAWN, drawn
from workbench.models.tflite.writer import Writer

__all__ = ["DRAWN", "Writer", "drawn"]
