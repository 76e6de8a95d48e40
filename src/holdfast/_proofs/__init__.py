"""How near is a fit to the optimum? Lower bounds and gaps, recomputed from the data.

No proof depends on the solver: proofs accept parameters, and guesses of dual weights, from any source. One module for
each kind of problem registers its proof with `certificate`; importing the package registers all of them.
"""

from holdfast._proofs import expected_softmax as expected_softmax
from holdfast._proofs import label_flips as label_flips
from holdfast._proofs import margin_scale as margin_scale
from holdfast._proofs import max_of_pairs as max_of_pairs
from holdfast._proofs import minimax_probability as minimax_probability
from holdfast._proofs import pairwise_certificate as pairwise_certificate
