"""Principal components of scikit-learn's digits by subspace iteration: `python numpy_pca.py`, or under `python -m lazy_numpy`."""

import argparse
import json
import time

import numpy as np
from sklearn.datasets import load_digits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--components", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200, help="at most so many")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()

    data = np.array(load_digits().data)
    centered = data - data.mean(axis=0)
    covariance = centered.T @ centered / (len(data) - 1)
    basis, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(data.shape[1], args.components)))

    curve, step_ends = [], []
    for _ in range(args.steps):
        image = covariance @ basis
        captured = np.trace(basis.T @ image)
        basis, _ = np.linalg.qr(image)
        curve.append(float(captured))
        step_ends.append(time.time())
        if len(curve) > 1 and abs(curve[-1] - curve[-2]) < 1e-9 * curve[-1]:
            break

    scores = centered @ basis
    error = np.sqrt(((centered - scores @ basis.T) ** 2).mean())
    share = curve[-1] / float(np.trace(covariance))
    print(
        f"{args.components} components hold {share:.4f} of the variance after {len(curve)} steps; reconstruction error {float(error):.4f}"
    )
    if args.json:
        print(json.dumps({"result": "variance share", "value": share, "curve": curve, "step_ends": step_ends}))


if __name__ == "__main__":
    main()
