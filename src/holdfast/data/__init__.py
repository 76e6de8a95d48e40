"""Where the rows live: one interface, passes over rows."""

from holdfast.data.dense import DenseRows as DenseRows
from holdfast.data.source import rows_of as rows_of
from holdfast.data.sparse import CROWDED as CROWDED
from holdfast.data.sparse import SparseRows as SparseRows
