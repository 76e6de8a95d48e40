"""How near is a fit to the optimum? Lower bounds and gaps, recomputed from the data.

What is minimised and how is known to nobody here: proofs take parameters, and guesses of dual weights, from anywhere. One
module for each kind of problem registers what it proves in `certificate`; importing the package makes all of them known.
"""

from holdfast._proofs import expected_softmax as expected_softmax
from holdfast._proofs import label_flips as label_flips
from holdfast._proofs import margin_scale as margin_scale
from holdfast._proofs import max_of_pairs as max_of_pairs
from holdfast._proofs import minimax_probability as minimax_probability
from holdfast._proofs import pairwise_certificate as pairwise_certificate
