"""A mixed table with missing entries, from training to what to measure next. Run: python examples/missing_entries.py"""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import holdfast as hf
from holdfast.datasets import load_breast_cancer_errors

X, _, y, names = load_breast_cancer_errors()
frame, rng = pd.DataFrame(X, columns=names), np.random.default_rng(0)
frame["grade"] = np.where(rng.uniform(size=len(y)) < 0.7, np.where(y == 0, "high", "low"), "middle")  # made up
frame = frame.mask(rng.uniform(size=frame.shape) < 0.3)  # three entries of ten were never measured
numbers = make_pipeline(hf.ConditionalImputer(), StandardScaler())
columns = make_column_transformer((numbers, list(names)), (hf.CategoryEncoder(), ["grade"]))
model = hf.make_uncertain_pipeline(columns, hf.GaussianRobustClassifier()).fit(frame[:400], y[:400])
print(f"accuracy on new rows: {model.score(frame[400:], y[400:]):.1%}")
report = hf.missing_report(model, frame[400:])
print(report)
patient = report.flip_probability.argmax()
print(model.predict_proba(frame[400:].iloc[[patient]]).round(2), "measure next:", report.next_measurement[patient])
