"""`als`: Bayesian alternating least squares over sums."""

from tacit.methods.als.method import ALS

__all__ = ["ALS"]
