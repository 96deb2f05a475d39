"""What carries the messages. Engines do no mathematics."""

from tacit.engine.inprocess import InProcess

__all__ = ["InProcess"]
