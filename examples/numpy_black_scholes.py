"""A book of a million European options under market shocks: `python numpy_black_scholes.py`, or under `python -m lazy_numpy`."""

import argparse
import json
import time

import numpy as np


def normal_cdf(x):
    """The standard normal distribution function, f64[n] -> f64[n], to 7.5e-8 (Abramowitz and Stegun 26.2.17)."""
    t = 1.0 / (1.0 + 0.2316419 * np.abs(x))
    tail = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail *= np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)
    return np.where(x >= 0, 1.0 - tail, tail)


def prices(spot, strike, years, rate, volatility):
    """Calls and puts, each f64[n]."""
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / spread
    d2 = d1 - spread
    discounted = strike * np.exp(-rate * years)
    call = spot * normal_cdf(d1) - discounted * normal_cdf(d2)
    return call, call - spot + discounted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--options", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=12, help="so many market shocks")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    spot = rng.uniform(20.0, 180.0, args.options)
    strike = rng.uniform(20.0, 180.0, args.options)
    years = rng.uniform(0.1, 3.0, args.options)
    volatility = rng.uniform(0.1, 0.5, args.options)

    curve, step_ends = [], []
    for k in range(args.steps):
        call, put = prices(spot * (0.9 + 0.02 * k), strike, years, 0.01 + 0.001 * k, volatility)
        curve.append(float((call + put).mean()))
        step_ends.append(time.time())

    print(f"mean value of a straddle: {curve[0]:.6f} before, {curve[-1]:.6f} after {len(curve)} shocks")
    if args.json:
        print(json.dumps({"result": "mean straddle", "value": curve[-1], "curve": curve, "step_ends": step_ends}))


if __name__ == "__main__":
    main()
