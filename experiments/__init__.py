"""Run files, one per claim, and the sweeps that fill the tables of docs/results."""
