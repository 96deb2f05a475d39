"""Arithmetic and state machines that aggregations and alignment are made of; no party, no coordinator, no noise."""
