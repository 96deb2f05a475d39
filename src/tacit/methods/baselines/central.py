"""`central`, the ceiling: every party sends its ratings as they are, and `als` is trained on all of them."""

import numpy as np

from tacit.federation import Facts, Federation
from tacit.methods.als.pooled import sweeps
from tacit.methods.als.method import ALSParameters
from tacit.methods.baselines.central_sgd import DisclosingParty, pooled
from tacit.methods.method import RATED, Coordinator, Method, Sides
from tacit.model import Fitted, Model
from tacit.partition import Setting
