"""Ratings, and where they come from: files, databases, published sets, or a made-up world."""

from tacit.data.catalogue import Catalogue
from tacit.data.load import load
from tacit.data.ratings import Feedback, Ratings, Scale
from tacit.data.split import split
from tacit.data.synthetic import demo
from tacit.data.vocabulary import Vocabulary

__all__ = ["Catalogue", "Feedback", "Ratings", "Scale", "Vocabulary", "load", "split", "demo"]
