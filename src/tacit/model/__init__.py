"""What a fit leaves: shared factors, and ways to use them."""

from tacit.model.model import Model
from tacit.model.predictor import Factors, ItemScores, Part, Predictor, assemble

__all__ = ["Factors", "ItemScores", "Model", "Part", "Predictor", "assemble"]
