"""A user's own factors, the item factors fixed: what each user does at home.

Descent on ½·Σ_j (r_j − u·v_j)² over the user's own ratings. Since ‖v_j‖² ≤ R, the curvature is at most R per rating,
and a step of 1/(R·count) never overshoots; it depends on the user's own record alone.
"""

import numpy as np

from tacit.kernels.embed import embed_numpy
from tacit.kernels.jit import Array, compiled

#: Folding in ends when a step moves by less than a billionth of √R.
STILL = 1e-18


@compiled(fastmath=True)
def _user_descent(indptr, items, values, shift, rows, users, factors, span, steps):
    p = users.shape[1]
    gradient = np.empty(p, dtype=np.float32)
    for a in range(len(rows)):
        i = rows[a]
        count = indptr[i + 1] - indptr[i]
        rate = np.float32(1) / (span * np.float32(max(1, count)))
        for _ in range(steps if count > 0 else 0):
            gradient[:] = 0
            for e in range(indptr[i], indptr[i + 1]):
                j = items[e]
                predicted = np.float32(0)
                for f in range(p):
                    predicted += users[i, f] * factors[j, f]
                slope = predicted - (values[e] - shift)
                for f in range(p):
                    gradient[f] += slope * factors[j, f]
            squares = np.float32(0)
            for f in range(p):
                value = max(np.float32(0), users[i, f] - rate * gradient[f])
                users[i, f] = value
                squares += value * value
            if squares > span:
                shrink = np.sqrt(span / squares)
                for f in range(p):
                    users[i, f] *= shrink


def user_descent(
    indptr: Array,
    items: Array,
    values: Array,
    shift: float,
    rows: Array,
    users: Array,
    factors: Array,
    span: float,
    steps: int,
) -> Array:
    """`steps` steps for each of `rows`; users (n, p) float32, in place and returned. No ratings, no move."""
    _user_descent(indptr, items, values, np.float32(shift), rows, users, factors, np.float32(span), steps)
    return users


def user_descent_numpy(indptr, items, values, shift, rows, users, factors, span, steps):
    """The twin of `user_descent`; leaves users as they are."""
    users = users.copy()
    for i in rows:
        mine = slice(indptr[i], indptr[i + 1])
        v, r = factors[items[mine]], values[mine] - np.float32(shift)
        for _ in range(steps if len(r) else 0):
            users[i] = embed_numpy((users[i] - (users[i] @ v.T - r) @ v / (span * len(r)))[None], span)[0]
    return users


@compiled(fastmath=True)
def _fold_in(indptr, items, values, shift, factors, prior, regularization, span, steps, out):
    p = factors.shape[1]
    a, b = np.empty((p, p), dtype=np.float64), np.empty(p, dtype=np.float64)
    u, ahead, new = np.empty(p, dtype=np.float64), np.empty(p, dtype=np.float64), np.empty(p, dtype=np.float64)
    for i in range(len(indptr) - 1):
        a[:] = 0
        squares = 0.0
        for f in range(p):
            a[f, f] = regularization
            b[f] = regularization * prior[f]
            u[f] = max(0.0, prior[f])
            squares += u[f] * u[f]
        if squares > span:
            u *= np.sqrt(span / squares)
        for e in range(indptr[i], indptr[i + 1]):
            j, rating = items[e], np.float64(values[e] - shift)
            for f in range(p):
                factor = np.float64(factors[j, f])
                b[f] += rating * factor
                for h in range(p):
                    a[f, h] += factor * factors[j, h]
        bound = 0.0
        for f in range(p):
            row = 0.0
            for h in range(p):
                row += abs(a[f, h])
            bound = max(bound, row)
        ahead[:] = u
        t = 1.0
        for _ in range(steps if bound > 0 else 0):
            squares = 0.0
            for f in range(p):
                slope = -b[f]
                for h in range(p):
                    slope += a[f, h] * ahead[h]
                new[f] = max(0.0, ahead[f] - slope / bound)
                squares += new[f] * new[f]
            if squares > span:
                new *= np.sqrt(span / squares)
            moved, turned = 0.0, 0.0
            for f in range(p):
                moved += (ahead[f] - new[f]) * (ahead[f] - new[f])
                turned += (ahead[f] - new[f]) * (new[f] - u[f])
            following = 1.0 if turned > 0 else (1.0 + np.sqrt(1.0 + 4.0 * t * t)) / 2.0
            momentum = 0.0 if turned > 0 else (t - 1.0) / following
            for f in range(p):
                ahead[f] = new[f] + momentum * (new[f] - u[f])
                u[f] = new[f]
            t = following
            if moved <= STILL * span:
                break
        for f in range(p):
            out[i, f] = u[f]


def fold_in(
    indptr: Array,
    items: Array,
    values: Array,
    shift: float,
    factors: Array,
    prior: Array,
    regularization: float,
    span: float,
    steps: int = 1000,
) -> Array:
    """New users' factors: the u ≥ 0, ‖u‖² ≤ R that minimises Σ_j (r_j − u·v_j)² + regularization·‖u − prior‖².

    Returns (n, p) float32; a user without ratings gets the prior, projected. Accelerated projected gradient that
    restarts whenever its momentum points uphill (Beck and Teboulle 2009; O'Donoghue and Candès 2015) and ends when
    a step leads nowhere, mostly after some hundred; plain steps would need thousands.
    """
    out = np.empty((len(indptr) - 1, factors.shape[1]), dtype=np.float32)
    _fold_in(
        indptr, items, values, np.float32(shift), factors, prior.astype(np.float64), regularization, span, steps, out
    )
    return out


def fold_in_numpy(indptr, items, values, shift, factors, prior, regularization, span, steps=1000):
    """The twin of `fold_in`."""
    out = np.empty((len(indptr) - 1, factors.shape[1]), dtype=np.float32)
    for i in range(len(out)):
        mine = slice(indptr[i], indptr[i + 1])
        v = factors[items[mine]].astype(np.float64)
        a = v.T @ v + regularization * np.eye(v.shape[1])
        b = v.T @ (values[mine] - np.float32(shift)) + regularization * prior
        u, bound, t = embed_numpy(prior.astype(np.float64)[None], span)[0], np.abs(a).sum(axis=1).max(), 1.0
        ahead = u
        for _ in range(steps if bound > 0 else 0):
            new = embed_numpy((ahead - (a @ ahead - b) / bound)[None], span)[0]
            turned = (ahead - new) @ (new - u) > 0
            following = 1.0 if turned else (1 + np.sqrt(1 + 4 * t * t)) / 2
            momentum = 0.0 if turned else (t - 1) / following
            moved = np.sum((ahead - new) ** 2)
            ahead, u, t = new + momentum * (new - u), new, following
            if moved <= STILL * span:
                break
        out[i] = u
    return out
