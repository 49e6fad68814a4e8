"""Operators of classical models: decision trees, and probabilities of support vector machines."""
