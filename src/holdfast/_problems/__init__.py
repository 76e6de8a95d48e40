"""The problems to minimise, made of a loss, sets and rows, and their views for solvers.

Importing the package registers the views that are defined in separate modules.
"""

from holdfast._problems import cones as cones
from holdfast._problems import deletions as deletions
from holdfast._problems import finite_sum as finite_sum
from holdfast._problems import intervals as intervals
from holdfast._problems import proximal_sum as proximal_sum
from holdfast._problems import rounded as rounded
