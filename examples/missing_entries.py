"""A mixed table with missing entries, from training to what to measure next. Run: python examples/missing_entries.py"""

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from holdfast import (
    CategoryEncoder,
    ConditionalImputer,
    GaussianRobustClassifier,
    make_uncertain_pipeline,
    missing_report,
)
from holdfast.datasets import load_breast_cancer_errors

X, _, y, names = load_breast_cancer_errors()
frame, rng = pd.DataFrame(X, columns=names), np.random.default_rng(0)
frame["grade"] = np.where(rng.uniform(size=len(y)) < 0.7, np.where(y == 0, "high", "low"), "middle")  # made up
frame = frame.mask(rng.uniform(size=frame.shape) < 0.3)  # three entries of ten were never measured
numbers = make_pipeline(ConditionalImputer(), StandardScaler())
columns = ColumnTransformer([("numbers", numbers, list(names)), ("grade", CategoryEncoder(), ["grade"])])
model = make_uncertain_pipeline(columns, GaussianRobustClassifier()).fit(frame[:400], y[:400])
print(f"accuracy on new rows: {model.score(frame[400:], y[400:]):.1%}")
report = missing_report(model, frame[400:])
print(report)
patient = frame[400:].iloc[[report.flip_probability.argmax()]]
print(model.predict_proba(patient).round(2), "measure next:", missing_report(model, patient).next_measurement[0])
