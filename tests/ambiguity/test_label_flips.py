"""What LabelFlips takes a budget to be."""

import numpy as np
import pytest
from sklearn.base import clone

from holdfast import LabelFlips

CLASSES, TOTALS = np.array(["ham", "spam"]), np.array([60.0, 40.0])


@pytest.mark.parametrize(
    ("k", "budgets"),
    [
        (7, [7]),
        (np.int64(7), [7]),
        (0, [0]),
        (0.25, [25]),
        (np.float32(0.25), [25]),
        (1.0, [100]),
        (1, [1]),
        (100, [100]),
        ({"ham": 3, "spam": 0.5}, [3, 20]),
        ({"spam": 40, "ham": 0}, [0, 40]),
    ],
)
def test_counts_and_shares(k, budgets):
    np.testing.assert_allclose(LabelFlips(k).budgets(TOTALS, CLASSES), budgets)


@pytest.mark.parametrize(
    ("k", "said"),
    [
        (-1, "an integer >= 0"),
        (1.5, "a float from 0 to 1"),
        (3.0, r"did you mean 3\?"),
        (-0.1, "a float from 0 to 1"),
        (np.nan, "a float from 0 to 1"),
        (True, "an integer >= 0"),
        ("5", "an integer >= 0"),
        (None, "an integer >= 0"),
        (101, "101 labels of 100 rows"),
        (10**400, "an integer of 1329 bits> labels of 100 rows"),
        ({"spam": 41, "ham": 0}, "41 labels of 40 rows"),
        ({"ham": 3}, "'spam' is missing"),
        ({"ham": 3, "spam": 1, "eggs": 1}, "no other .'eggs'."),
        ({"ham": -3, "spam": 1}, "an integer >= 0"),
    ],
)
def test_nonsense_is_refused_by_name(k, said):
    with pytest.raises(ValueError, match=said) as error:
        LabelFlips(k).budgets(TOTALS, CLASSES)
    assert str(error.value).startswith(repr(LabelFlips(k)))


def test_it_is_a_parameter():
    assert clone(LabelFlips(5), safe=False) == LabelFlips(5) != LabelFlips(6)
    assert repr(LabelFlips({"a": 1, "b": 0.5})) == "LabelFlips(k={'a': 1, 'b': 0.5})"
