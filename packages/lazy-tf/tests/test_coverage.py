"""The page of covered operations says what is true of this TensorFlow."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from lazy_tf import coverage, mapping

PAGE = Path(__file__).parents[3] / "docs" / "tensorflow-coverage.md"


def test_the_page_is_what_the_registries_say():
    if not tf.__version__.startswith("2.21.0"):
        pytest.skip("the page is of TensorFlow 2.21.0")
    assert PAGE.read_text(encoding="utf-8") == coverage.page(), "run: python -m lazy_tf coverage > docs/tensorflow-coverage.md"


def test_every_lowering_is_of_an_operation_that_exists():
    """A name that TensorFlow does not know would never be met."""
    unknown = [n for n in (*mapping.RULES, *mapping.UPDATES) if not hasattr(tf.raw_ops, n)]
    assert unknown == []


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("MatMul", "recorded"),
        ("Shape", "host"),
        ("While", "inlined"),
        ("MatrixDiagV3", "xla"),
        ("Where", "fallback"),
        ("MapDataset", "pipeline"),
    ],
)
def test_an_operation_is_counted_where_it_runs(name, group):
    assert name in coverage.sort_out()[group]
