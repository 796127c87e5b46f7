"""k-means on scikit-learn's digits: `python numpy_kmeans.py`, or `python -m lazy_numpy numpy_kmeans.py`."""

import argparse
import json
import time

import numpy as np
from sklearn.datasets import load_digits


def step(points, centers):
    """One of Lloyd's iterations: the new centers f64[k,d] and the inertia, from points f64[n,d]."""
    distances = (points**2).sum(axis=1)[:, None] - 2 * points @ centers.T + (centers**2).sum(axis=1)
    nearest = np.argmin(distances, axis=1)
    members = (nearest[:, None] == np.arange(len(centers))).astype(points.dtype)
    counts = members.sum(axis=0)
    means = (members.T @ points) / np.maximum(counts, 1)[:, None]
    return np.where(counts[:, None] > 0, means, centers), np.min(distances, axis=1).sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100, help="at most so many")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()

    points = np.array(load_digits().data)
    rng = np.random.default_rng(0)
    centers = points[rng.choice(len(points), args.clusters, replace=False)]

    curve, step_ends = [], []
    for _ in range(args.steps):
        moved, inertia = step(points, centers)
        shift = float(np.abs(moved - centers).max())
        centers = moved
        curve.append(float(inertia))
        step_ends.append(time.time())
        if shift < 1e-9:
            break

    print(f"inertia {curve[-1]:.3f} after {len(curve)} steps")
    if args.json:
        print(json.dumps({"result": "inertia", "value": curve[-1], "curve": curve, "step_ends": step_ends}))


if __name__ == "__main__":
    main()
