"""Published algorithms as stated in their papers, and curiosities. Nothing else in holdfast uses them.

They are here for comparison. Each has a better alternative in the main packages, or answers a question that few ask:

- `AlternatingSVC`: ASVC and TSVC, trained in alternating rounds that often do not settle. Use `RobustLinearClassifier` with a
  `Ball` instead, which solves the pessimistic problem exactly.
- `unidirectional_multi_hinge` and `expected_max`: the multiclass hinge averaged over noise along one direction. They evaluate a
  model and train none. To train with noise use `GaussianRobustClassifier(loss="hinge")`, to evaluate use `flip_probability`.
- `recover_from_dual`: the coefficients computed from the dual weights of a fit. A fitted classifier has them as `coef_`.

They are tested like everything else, but may change or be removed at shorter notice.
"""

from holdfast.experiments.alternating_svc import AlternatingSVC
from holdfast.experiments.dual_view import recover_from_dual
from holdfast.experiments.multi_hinge import expected_max, unidirectional_multi_hinge

__all__ = ["AlternatingSVC", "expected_max", "recover_from_dual", "unidirectional_multi_hinge"]
