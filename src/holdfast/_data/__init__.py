"""Storage of the rows behind one interface: passes over rows."""

from holdfast._data.dense import DenseRows as DenseRows
from holdfast._data.source import rows_of as rows_of
from holdfast._data.sparse import CROWDED as CROWDED
from holdfast._data.sparse import SparseRows as SparseRows
