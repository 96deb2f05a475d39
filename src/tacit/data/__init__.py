"""Ratings, and where they come from: files, databases, published sets, or a made-up world."""

from tacit.data.load import load
from tacit.data.ratings import Feedback, Ratings, Scale, Vocabulary
from tacit.data.split import split
from tacit.data.synthetic import demo

__all__ = ["Feedback", "Ratings", "Scale", "Vocabulary", "load", "split", "demo"]
