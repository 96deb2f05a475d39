"""Compiled loops, each beside the NumPy twin that documents it and that it is tested equal to."""
