"""TIR expressions, whoever evaluates them: as vectors, as text of a GPU's C, as a number of operations."""
