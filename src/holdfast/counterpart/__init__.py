"""Counterparts: loss + set + rows give a problem, its certificate and its solution."""

from holdfast.counterpart import pairwise_certificate as pairwise_certificate
from holdfast.counterpart.alternating import alternate as alternate
from holdfast.counterpart.certificate import Certificate as Certificate
from holdfast.counterpart.certificate import certificate as certificate
from holdfast.counterpart.collapse import critical_factor as critical_factor
from holdfast.counterpart.collapse import majority as majority
from holdfast.counterpart.critical import collapse_bound as collapse_bound
from holdfast.counterpart.critical import critical_size as critical_size
from holdfast.counterpart.label_flips import flipped as flipped
from holdfast.counterpart.margin_scale import MarginScaleProblem as MarginScaleProblem
from holdfast.counterpart.max_of_pairs import MaxOfPairsProblem as MaxOfPairsProblem
from holdfast.counterpart.minimax_probability import MinimaxProbabilityProblem as MinimaxProbabilityProblem
from holdfast.counterpart.minimax_probability import MinimaxProof as MinimaxProof
from holdfast.counterpart.minimax_probability import Moments as Moments
from holdfast.counterpart.minimax_probability import class_law as class_law
from holdfast.counterpart.minimax_probability import train_minimax as train_minimax
from holdfast.counterpart.pairwise import PairwiseProblem as PairwiseProblem
from holdfast.counterpart.penalty import Lasso as Lasso
from holdfast.counterpart.penalty import Limits as Limits
from holdfast.counterpart.pushed import PushedProblem as PushedProblem
from holdfast.counterpart.separation import separable_size as separable_size
from holdfast.counterpart.streaming import ProximalStream as ProximalStream
from holdfast.counterpart.streaming import Stream as Stream
from holdfast.counterpart.training import train as train
