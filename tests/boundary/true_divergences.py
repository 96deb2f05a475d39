"""Divergences between neighbours, worked out from the distributions themselves: what every bound is held against.

Nothing here uses the accountant. Distributions are arrays of probabilities over a grid that both neighbours share.
"""

import itertools
import math

import numpy as np
from scipy.special import ive, ndtr
from scipy.stats import binom


def renyi(p, q, alpha):
    """D_α(P‖Q) of two arrays of probabilities, over the cells where both are representable."""
    kept = (p > 0) & (q > 0)
    terms = alpha * np.log(p[kept]) + (1 - alpha) * np.log(q[kept])
    top = terms.max()
    return (top + math.log(np.exp(terms - top).sum())) / (alpha - 1)


def hockey_stick(p, q, epsilon):
    """Σ (P − e^ε·Q)₊."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def shifted(noise, shift):
    """Integer noise, centred in `noise`, under a neighbour whose answer is `shift` further on; both on one grid."""
    wide = np.pad(noise, abs(shift))
    return wide, np.roll(wide, shift)


def skellam(variance, reach):
    """e^−μ·I_k(μ) for |k| ≤ reach: the difference of two Poissons of μ/2 each."""
    return ive(np.abs(np.arange(-reach, reach + 1)).astype(float), variance)


def discrete_gaussians(variance, shares, reach):
    """A sum of discrete Gaussians, by convolution: all terms are positive, so that tails keep their digits."""
    k = np.arange(-reach, reach + 1)
    one = np.exp(-(k**2) / (2 * variance))
    one /= one.sum()
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    return total


def laplace(scale, reach=60.0, step=0.01):
    """A Laplace density of a scale on a grid of cells."""
    edges = np.arange(-reach, reach + step, step)
    cdf = np.where(edges < 0, 0.5 * np.exp(edges / scale), 1 - 0.5 * np.exp(-edges / scale))
    return np.diff(cdf)


def normal(edges, mean, deviation):
    """The probability of each cell, to all digits in both tails."""
    z = (edges - mean) / deviation
    return np.where(z[:-1] > 0, -np.diff(ndtr(-z)), np.diff(ndtr(z)))


def sampled_gaussian(multiplier, rate, contribution, reach=12.0, cells=1200):
    """What a unit's record of norm |contribution| ≤ 1 makes of one sampled answer, on a line."""
    edges = np.linspace(-reach * multiplier - 1, reach * multiplier + 1, cells + 1)
    return (1 - rate) * normal(edges, 0.0, multiplier) + rate * normal(edges, contribution, multiplier)


def sampled_gaussian_plane(multiplier, rate, contribution, reach=7.0, cells=240):
    """The same in two coordinates; `contribution` is a pair."""
    edges = np.linspace(-reach * multiplier - 1, reach * multiplier + 1, cells + 1)
    sides = [normal(edges, at, multiplier) for at in (0.0, *contribution)]
    return ((1 - rate) * np.outer(sides[0], sides[0]) + rate * np.outer(sides[1], sides[2])).ravel()


def twice(p):
    """Two independent copies."""
    return np.outer(p, p).ravel()


def shuffled_bits(epsilon, others_with_one, others_with_zero, mine):
    """How many ones arrive when everybody's bit goes through randomised response."""
    truth = 1 / (1 + math.exp(-epsilon))
    ones = others_with_one + mine
    zeros = others_with_zero + 1 - mine
    kept = binom.pmf(np.arange(ones + 1), ones, truth)
    turned = binom.pmf(np.arange(zeros + 1), zeros, 1 - truth)
    return np.convolve(kept, turned)


def shuffled_letters(epsilon, others, mine, letters=3):
    """The histogram of reports over three letters, each sent by 3-ary randomised response; shape (n + 1)²."""
    high = math.exp(epsilon) / (math.exp(epsilon) + letters - 1)
    low = (1 - high) / (letters - 1)
    table = np.ones((1, 1))
    for letter in (*others, mine):
        chance = [high if k == letter else low for k in range(letters)]
        grown = np.zeros((table.shape[0] + 1, table.shape[1] + 1))
        grown[:-1, :-1] += chance[0] * table
        grown[1:, :-1] += chance[1] * table
        grown[:-1, 1:] += chance[2] * table
        table = grown
    return table.ravel()


def clones(epsilon, crowd):
    """The pair of "Hiding Among the Clones" itself, as arrays over (how many zeros, how many ones)."""
    truth = 1 / (1 + math.exp(-epsilon))
    p, q = np.zeros((crowd + 1, crowd + 1)), np.zeros((crowd + 1, crowd + 1))
    for c, a in itertools.product(range(crowd), repeat=2):
        if a <= c:
            chance = binom.pmf(c, crowd - 1, math.exp(-epsilon)) * binom.pmf(a, c, 0.5)
            p[a + 1, c - a] += chance * truth
            p[a, c - a + 1] += chance * (1 - truth)
            q[a + 1, c - a] += chance * (1 - truth)
            q[a, c - a + 1] += chance * truth
    return p.ravel(), q.ravel()
