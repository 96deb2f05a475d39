"""What a fit leaves: a model of some form, and ways to use it."""

from tacit.model.bayesian import Bayesian
from tacit.model.co_occurrence import CoOccurrence
from tacit.model.forms import Form
from tacit.model.hashed import Hashed
from tacit.model.implicit import Implicit
from tacit.model.item_item import ItemItem
from tacit.model.linear import Linear
from tacit.model.model import Model
from tacit.model.nonnegative import NonNegative
from tacit.model.predictor import Fitted, Part, Predictor, assemble
from tacit.model.rated_and_ranked import RatedAndRanked
from tacit.model.tastes import Tastes

__all__ = [
    "Bayesian",
    "CoOccurrence",
    "Fitted",
    "Form",
    "Hashed",
    "Implicit",
    "ItemItem",
    "Linear",
    "Model",
    "NonNegative",
    "Part",
    "Predictor",
    "RatedAndRanked",
    "Tastes",
    "assemble",
]
