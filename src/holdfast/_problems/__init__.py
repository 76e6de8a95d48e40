"""What is minimised: a loss, sets and rows, seen as a problem through views.

Importing the package registers the views that modules of their own make of its problems.
"""

from holdfast._problems import cones as cones
from holdfast._problems import deletions as deletions
from holdfast._problems import finite_sum as finite_sum
from holdfast._problems import intervals as intervals
from holdfast._problems import proximal_sum as proximal_sum
from holdfast._problems import rounded as rounded
