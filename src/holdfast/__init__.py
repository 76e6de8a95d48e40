r"""Classifiers that hold when the data does not: scikit-learn classifiers for rows and labels that may be wrong.

What may be wrong with your data? Choose, then ``fit(X, y)`` as usual, with what is known of each row beside it::

    values have error bars, as deviations     GaussianRobustClassifier(noise=0.3)
      one for each entry                      GaussianRobustClassifier().fit(X, y, X_std=errors)
      and classes that no line tells apart    NoiseAwareClassifier().fit(X, y, X_std=errors), NoiseAwareClassifierCV()
      before a linear model of your choice    make_uncertain_pipeline(ExpectedFeatures(), classifier)
      of unknown size                         GaussianRobustClassifierCV()
    values lie within tolerances              RobustLinearClassifier(Box(0.1)), or Box() with X_std=half_widths
      between lower and upper bounds          RobustLinearClassifier(IntervalBox()).fit(X, y, X_lower=..., X_upper=...)
      and no line tells the classes apart     RobustKernelClassifier(Box(0.1)); RobustNystroem(), RobustFourierFeatures()
      in a ball or an ellipsoid around X      RobustLinearClassifier(Ball(0.5)), Ellipsoid(shape=...)
      with a given probability                RobustLinearClassifier(ChanceConstraint(0.05, "gaussian", cov=...))
      of unknown size                         RobustLinearClassifierCV(uncertainty=Box())
      in features still to be found           SafeClassifier().fit(X, y, X_val=..., y_val=...)
    values were missing and are filled in     make_uncertain_pipeline(ConditionalImputer(), ..., classifier)
      categories that are missing             CategoryEncoder(), in a ColumnTransformer of the pipeline
      and the worst case counts               make_uncertain_pipeline(SpreadImputer(), ..., classifier)
    features may be missing when it is used   FeatureDeletionClassifier(budget=2), FeatureDeletionClassifierCV(deleted=2)
      whichever, at random                    GaussianRobustClassifier(DropoutNoise(0.3)), rows filled in with means
      besides another set                     RobustLinearClassifier(FeatureDeletion(2) + Box(0.1))
      and rows come one by one                FeatureDeletionPerceptron(budget=2)
    features may be replaced by noise         CorruptedFeatures(2), for robustness_curve
    some training rows are corrupted          LaplaceBoostClassifier("tail"), and with a PAC-Bayes bound
    some labels are wrong                     RobustLinearClassifier(ambiguity=LabelFlips(0.05))
    weights will be rounded or pruned         RobustLinearClassifier(weight_error=WeightError(0.01))
    only class means and covariances known    MinimaxProbabilityClassifier()
    errors are of raw features, then scaled   UncertainPipeline, make_uncertain_pipeline(StandardScaler(), classifier)
    the classifier is somebody else's         NoiseCopies(classifier) trains it, ModeratedClassifier(classifier) averages it

Several at once: sets add up, ``Box(0.1) + Ball(0.5)``, and `ambiguity`, `weight_error` and a set go together.

What to ask of any fitted classifier, ours or scikit-learn's::

    how far may a row move?                   certified_radius(model, X)
    how accurate is it in the worst case?     robust_accuracy(model, X, y, Box(0.1))
    how likely is noise to change a class?    flip_probability(model, X, X_std=errors)
    what may missing entries change?          missing_report(model, X), and which one to measure next
    how does it degrade?                      robustness_curve(models, X, y, GaussianNoise(0.3), levels)
    which model degrades less?                compare(models, X, y, GaussianNoise(0.3), level)

Everything else is in the sub-package that it belongs to:

- `holdfast.uncertainty`, `holdfast.ambiguity`: sets and noises of rows, and of labels;
- `holdfast.estimators`: the classifiers, their paths, and bounds on what they can do;
- `holdfast.pipeline`: errors estimated from data and carried through preprocessing;
- `holdfast.features`: what steps do to rows and their errors, and how to teach a step of your own;
- `holdfast.evaluate`: more questions to fitted classifiers, scorers, and the records that answer;
- `holdfast.display`: pictures; `holdfast.datasets`: tables of measurements as arrays;
- `holdfast.losses`, `holdfast.solvers`: parts of classifiers, as objects;
- `holdfast.experiments`: published algorithms that something here does better;
- `holdfast.exceptions`: warnings and errors, for filters.

For large data: ``pip install holdfast[fast]``, then once ``holdfast.compile()``.
"""

from holdfast import display as display
from holdfast import exceptions as exceptions
from holdfast._core.version import __version__
from holdfast.ambiguity import LabelFlips
from holdfast.estimators import (
    FeatureDeletionClassifier,
    FeatureDeletionClassifierCV,
    FeatureDeletionPerceptron,
    GaussianRobustClassifier,
    GaussianRobustClassifierCV,
    LaplaceBoostClassifier,
    MinimaxProbabilityClassifier,
    NoiseAwareClassifier,
    NoiseAwareClassifierCV,
    RobustKernelClassifier,
    RobustLinearClassifier,
    RobustLinearClassifierCV,
    SafeClassifier,
)
from holdfast.evaluate import (
    certified_radius,
    compare,
    flip_probability,
    missing_report,
    robust_accuracy,
    robustness_curve,
)
from holdfast.features import ExpectedFeatures, RobustFourierFeatures, RobustNystroem
from holdfast.pipeline import (
    CategoryEncoder,
    ConditionalImputer,
    ModeratedClassifier,
    NoiseCopies,
    SpreadImputer,
    UncertainPipeline,
    make_uncertain_pipeline,
)
from holdfast.solvers import compile
from holdfast.uncertainty import (
    Ball,
    Box,
    ChanceConstraint,
    CorruptedFeatures,
    DropoutNoise,
    Ellipsoid,
    FeatureDeletion,
    GaussianNoise,
    IntervalBox,
    WeightError,
)

__all__ = [
    "Ball",
    "Box",
    "CategoryEncoder",
    "ChanceConstraint",
    "ConditionalImputer",
    "CorruptedFeatures",
    "DropoutNoise",
    "Ellipsoid",
    "ExpectedFeatures",
    "FeatureDeletion",
    "FeatureDeletionClassifier",
    "FeatureDeletionClassifierCV",
    "FeatureDeletionPerceptron",
    "GaussianNoise",
    "GaussianRobustClassifier",
    "GaussianRobustClassifierCV",
    "IntervalBox",
    "LabelFlips",
    "LaplaceBoostClassifier",
    "MinimaxProbabilityClassifier",
    "ModeratedClassifier",
    "NoiseAwareClassifier",
    "NoiseAwareClassifierCV",
    "NoiseCopies",
    "RobustFourierFeatures",
    "RobustKernelClassifier",
    "RobustLinearClassifier",
    "RobustLinearClassifierCV",
    "RobustNystroem",
    "SafeClassifier",
    "SpreadImputer",
    "UncertainPipeline",
    "WeightError",
    "__version__",
    "certified_radius",
    "compare",
    "compile",
    "flip_probability",
    "make_uncertain_pipeline",
    "missing_report",
    "robust_accuracy",
    "robustness_curve",
]
