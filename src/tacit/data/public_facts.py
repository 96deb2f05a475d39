"""Public facts, known before any rating is read. Named sets and the demo have their own."""

from __future__ import annotations

from dataclasses import dataclass, field

from tacit.config import DataSection, PublicSection
from tacit.data.catalogue import Catalogue
from tacit.data.ratings import Feedback, Scale
from tacit.errors import UsageError


@dataclass(frozen=True)
class PublicFacts:
    """n, m, the scale and |Ω|, as declared; never counted. Only step sizes and forecasts use |Ω|.

    `features` is the number of the catalogue's feature columns, `feedback` what a number in the matrix means, and
    `catalogue`, where it was read, is for forecasts.
    """

    users: int
    items: int
    scale: Scale
    ratings: int
    features: int = 0
    feedback: Feedback = Feedback.EXPLICIT
    catalogue: Catalogue | None = field(default=None, repr=False, compare=False)


#: Assumed ratings per user where their number is not declared.
TYPICAL_RATINGS = 50


# As published with each set: users, items listed, scale, ratings.
PUBLISHED = {
    "ml-100k": PublicFacts(943, 1_682, Scale(1, 5), 100_000),
    "ml-1m": PublicFacts(6_040, 3_883, Scale(1, 5), 1_000_209),
    "ml-latest-small": PublicFacts(610, 9_742, Scale(0.5, 5), 100_836),
    "ml-10m": PublicFacts(69_878, 10_681, Scale(0.5, 5), 10_000_054),
    "ml-20m": PublicFacts(138_493, 27_278, Scale(0.5, 5), 20_000_263),
    "ml-25m": PublicFacts(162_541, 62_423, Scale(0.5, 5), 25_000_095),
    "jester-1": PublicFacts(24_983, 100, Scale(-10, 10), 1_810_455),
    "hetrec2011-lastfm-2k": PublicFacts(1_892, 17_632, Scale(0, 1), 92_834, feedback=Feedback.IMPLICIT),
}


def public_facts(data: DataSection, public: PublicSection, seed: int = 7) -> PublicFacts:
    """The facts in [public], or those of a named set or the demo; a missing fact is an error."""
    known, kind = PUBLISHED.get(data.source), Feedback(data.feedback)
    if data.source == "demo" and data.feedback != "count":
        size, explicit = data.users or 1_000, data.feedback == "explicit"
        known = PublicFacts(
            size, data.items or 500, Scale(1, 5) if explicit else Scale(0, 1), data.ratings or 50 * size
        )
    users = public.users or (None if known is None else known.users)
    scale = Scale(*public.scale) if public.scale is not None else _scale(known, kind)
    listed = _listed(data, public, seed) if public.catalogue is not None or (known and public.features) else None
    items = len(listed) if public.catalogue is not None and listed else None if known is None else known.items
    if scale is None:
        raise _without_scale(data, kind)
    if users is None:
        raise _undeclared("users", "users = 6040")
    if items is None:
        raise _undeclared("catalogue", 'catalogue = "items.csv"')
    ratings = public.ratings or (users * min(TYPICAL_RATINGS, items) if known is None else known.ratings)
    features = 0 if listed is None else listed.width
    return PublicFacts(users, items, scale, ratings, features, kind, listed)


def _scale(known: PublicFacts | None, kind: Feedback) -> Scale | None:
    """A known set's scale, which is 0…1 for implicit feedback of any set, and starts at 0 for counts."""
    if kind is Feedback.IMPLICIT:
        return Scale(0, 1)
    if known is None or known.feedback is Feedback.IMPLICIT:
        return None
    return Scale(0, known.scale.high) if kind is Feedback.COUNT else known.scale


def _without_scale(data: DataSection, kind: Feedback) -> UsageError:
    """Counts have no ends that a publisher states, and implicit feedback needs none."""
    counts = kind is Feedback.COUNT or (data.source in PUBLISHED and PUBLISHED[data.source].feedback is not kind)
    if not counts:
        return _undeclared("scale", "scale = [1, 5]")
    return UsageError(
        f'"{data.source}" holds counts, whose scale nobody has published, and with [privacy] it may not be read off '
        'the data; set [data] feedback = "implicit", which needs no scale, or feedback = "count" and declare the scale '
        "in [public], as in scale = [0, 1000]."
    )


def _undeclared(name: str, example: str) -> UsageError:
    return UsageError(
        f"With [privacy], {name} must be a public fact, since inferring it from the ratings would be a leak; "
        f"declare it in [public], as in {example}."
    )


def _listed(data: DataSection, public: PublicSection, seed: int) -> Catalogue:
    """The catalogue that [public] names, or that of a named set or the demo."""
    from tacit.data.load import public_items

    return public_items(
        data.source,
        catalogue=public.catalogue,
        item_table=data.item_table,
        items=data.items,
        seed=seed,
        features=public.features,
    )
