"""What the families of privacy contracts share: units and settings by name, and how a planted bug is caught."""

import pytest

from tacit.guarantee import Unit
from tacit.partition import Setting

USER, RATING = (Unit.USER,), (Unit.RATING,)
HORIZONTAL, VERTICAL, DEVICE = (Setting.HORIZONTAL,), (Setting.VERTICAL,), (Setting.DEVICE,)


def caught(case, setting, unit):
    """The contract's word for a bug that was planted."""
    with pytest.raises(AssertionError) as found:
        case().test_no_neighbour_moves_an_answer_further_than_stated(setting, unit)
    return str(found.value)
