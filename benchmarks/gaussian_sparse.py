"""x"""

import numpy as np
from scipy import sparse


def bag_of_words(n, d, per_row=43, positive=0.5, seed=0):
    """Rows like texts: words drawn by Zipf's law, log counts weighted by rarity, unit length; labels from a sparse rule.

    A row has about `per_row` distinct words. A tenth of the words, of any popularity, carry a normal weight; the label says whether their sum plus
    noise of half its deviation is among the largest share `positive`.
    """
    rng = np.random.default_rng(seed)
    popularity = 1 / (np.arange(d) + 10.0)
    edges = np.cumsum(popularity / popularity.sum())
    lengths = rng.poisson(1.0 * per_row, size=n) + 1
    words = np.minimum(np.searchsorted(edges, rng.uniform(size=lengths.sum())), d - 1)
    rows = np.repeat(np.arange(n), lengths)
    X = sparse.coo_array((np.ones(len(words)), (rows.astype(np.int32), words.astype(np.int32))), shape=(n, d)).tocsr()
    shuffled = rng.permutation(d).astype(np.int32)
    X = sparse.csr_array(X[:, shuffled])
    X.sort_indices()
    found = np.bincount(X.indices, minlength=d)
    X.data = np.log1p(X.data) * np.log(n / np.maximum(found, 1))[X.indices]
    X.data /= np.repeat(np.sqrt(np.add.reduceat(X.data**2, X.indptr[:-1])), np.diff(X.indptr))
    rule = rng.normal(size=d) * (rng.uniform(size=d) < 0.1)
    score = X @ rule
    score = score + 0.5 * score.std() * rng.normal(size=n)
    return X, np.where(score > np.quantile(score, 1 - positive), 1, -1)
