"""Chains of a few operators on an image, drawn by a seed: what an optimiser's patterns may meet."""
