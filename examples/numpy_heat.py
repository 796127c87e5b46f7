"""Steady heat in a square plate, in-place slices: `python numpy_heat.py`, or `python -m lazy_numpy numpy_heat.py`."""

import argparse
import json
import time

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=130)
    parser.add_argument("--sweeps", type=int, default=20, help="sweeps in a step: so often is the residual looked at")
    parser.add_argument("--tolerance", type=float, default=2e-3)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()

    plate = np.zeros((args.size, args.size))
    plate[0, :] = 100.0
    plate[:, 0] = np.linspace(100.0, 0.0, args.size)
    residual = np.inf
    curve, step_ends = [], []
    while residual > args.tolerance:
        for _ in range(args.sweeps):
            before = plate[1:-1, 1:-1].copy()
            plate[1:-1, 1:-1] = 0.25 * (plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:])
        residual = float(np.abs(plate[1:-1, 1:-1] - before).max())
        curve.append(residual)
        step_ends.append(time.time())

    mean = float(plate.mean())
    print(f"mean temperature {mean:.6f} after {len(curve)} steps of {args.sweeps} sweeps")
    if args.json:
        print(json.dumps({"result": "mean temperature", "value": mean, "curve": curve, "step_ends": step_ends}))


if __name__ == "__main__":
    main()
