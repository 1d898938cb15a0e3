"""The embedded default: the breast-cancer table of scikit-learn as a graph of similar patients."""

from __future__ import annotations

import numpy as np
import torch

from graphforget.graph.graph import Graph

NEIGHBOURS = 5

# The smallest and largest value of each column, as the table's own description prints them.
RANGES = (
    (6.981, 28.11),  # mean radius
    (9.71, 39.28),  # mean texture
    (43.79, 188.5),  # mean perimeter
    (143.5, 2501.0),  # mean area
    (0.053, 0.163),  # mean smoothness
    (0.019, 0.345),  # mean compactness
    (0.0, 0.427),  # mean concavity
    (0.0, 0.201),  # mean concave points
    (0.106, 0.304),  # mean symmetry
    (0.05, 0.097),  # mean fractal dimension
    (0.112, 2.873),  # radius error
    (0.36, 4.885),  # texture error
    (0.757, 21.98),  # perimeter error
    (6.802, 542.2),  # area error
    (0.002, 0.031),  # smoothness error
    (0.002, 0.135),  # compactness error
    (0.0, 0.396),  # concavity error
    (0.0, 0.053),  # concave points error
    (0.008, 0.079),  # symmetry error
    (0.001, 0.03),  # fractal dimension error
    (7.93, 36.04),  # worst radius
    (12.02, 49.54),  # worst texture
    (50.41, 251.2),  # worst perimeter
    (185.2, 4254.0),  # worst area
    (0.071, 0.223),  # worst smoothness
    (0.027, 1.058),  # worst compactness
    (0.0, 1.252),  # worst concavity
    (0.0, 0.291),  # worst concave points
    (0.156, 0.664),  # worst symmetry
    (0.055, 0.208),  # worst fractal dimension
)


def read_patients() -> Graph:
    """569 patients with 30 measurements and a diagnosis each; edges join each to the 5 most similar patients.

    Each column is mapped linearly from its printed range to [-1, 1]. The ranges are constants, not statistics
    of the rows, so removing a patient does not change the attributes of others. The value 0, which stands
    for "forgotten", is the middle of the range. The description rounds the ranges, so a few values lie up to 0.02
    outside; they are not clipped. Edges are not computed again after a removal.
    """
    from sklearn.datasets import load_breast_cancer
    from sklearn.neighbors import kneighbors_graph

    table = load_breast_cancer()
    low, high = np.array(RANGES).T
    x = 2 * (table.data - low) / (high - low) - 1
    nearest = kneighbors_graph(x, NEIGHBOURS, metric="euclidean").tocoo()
    return Graph.create(
        x=torch.from_numpy(x),
        edges=torch.from_numpy(np.stack([nearest.row, nearest.col]).astype(np.int64)),
        y=torch.from_numpy(table.target),
        subject_ids=[f"patient-{row:04d}" for row in range(len(x))],
        column_names=table.feature_names.tolist(),
        class_names=table.target_names.tolist(),
        name="patients",
    )
