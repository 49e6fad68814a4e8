"""What a model becomes on its way through the compiler, as texts for people: ``--keep-stages``."""
