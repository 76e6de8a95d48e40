"""The published experiment with two copies of a noisy label among the features, which vanish when the model is used."""

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from holdfast import FeatureDeletionClassifier, FeatureDeletionPerceptron

VALUES = np.r_[np.ones(20), 10.0, 10.0]
RUNS = 10


def draw(seed):
    """Return 1000 rows of 22 features, the last two of them copies of the label, which is wrong for a fifth of the rows.

    The right labels are told by a hyperplane in the other 20, at a distance of 0.2 or more. This distance is not stated in
    print; without it even a model that has never seen the copies errs more often than the published one.
    """
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=20)
    direction /= np.linalg.norm(direction)
    X = rng.uniform(-1, 1, size=(4000, 20))
    X = X[np.abs(X @ direction) > 0.2][:1000]
    y = np.sign(X @ direction) * np.where(rng.random(1000) < 0.2, -1, 1)
    return np.column_stack([X, y, y]), y


def errors(model, X, y, *gone):
    """Return the share of errors where these features are missing."""
    rows = X.copy()
    rows[:, gone] = 0.0
    return 1 - model.score(rows, y)


@pytest.fixture(scope="module")
def runs():
    """Models trained on half of the rows, with the other half."""
    made = []
    for seed in range(RUNS):
        X, y = draw(seed)
        models = {
            "robust": FeatureDeletionClassifier(20, VALUES, margin=0.1),
            "narrow": FeatureDeletionClassifier(10, VALUES, margin=0.1),
            "perceptron": FeatureDeletionPerceptron(20, VALUES, margin=0.1, random_state=0),
            "plain": LinearSVC(loss="hinge", C=10.0, max_iter=100_000),
        }
        made.append(({name: model.fit(X[:500], y[:500]) for name, model in models.items()}, X[500:], y[500:]))
    return made


def mean_errors(runs, name, *gone):
    return np.mean([errors(models[name], X, y, *gone) for models, X, y in runs])


def test_one_copy_left_is_enough_for_everyone(runs):
    """As published: no errors at all, whichever copy vanishes."""
    for name in ("robust", "perceptron", "plain"):
        for gone in ((), (20,), (21,)):
            assert mean_errors(runs, name, *gone) == 0


def test_training_for_the_loss_of_both_copies_leaves_the_errors_of_the_labels(runs):
    """A fifth of the labels are wrong, which no model without the copies can know.

    The limits are ours. Over many runs we find 0.204 (linear program), 0.235 (perceptron) and 0.426 (support vector machine);
    published are 0.22 and 0.477 for the first and the last, of rows drawn in a way that is not stated.
    """
    assert 0.18 < mean_errors(runs, "robust", 20, 21) < 0.245
    assert mean_errors(runs, "perceptron", 20, 21) < 0.28
    assert mean_errors(runs, "plain", 20, 21) > 0.37


def test_a_budget_for_one_copy_is_not_one_for_both(runs):
    assert mean_errors(runs, "robust", 20, 21) < mean_errors(runs, "narrow", 20, 21)
    assert mean_errors(runs, "narrow", 20, 21) < mean_errors(runs, "plain", 20, 21)
