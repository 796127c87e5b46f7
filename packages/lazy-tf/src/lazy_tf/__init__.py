"""LazyTensor for TensorFlow: a custom device that records eager operations and compiles them as whole graphs.

    import tensorflow as tf
    import lazy_tf

    with lazy_tf.device():
        y = tf.nn.relu(tf.random.normal([8, 8]) @ tf.ones([8, 8]))    # recorded
        print(y)                                                      # compiled and run

TensorFlow itself must be installed; see `lazy_core` for barriers, options and the report.
"""

from __future__ import annotations

from lazy_core import __version__

from .convert import from_lazy, from_numpy, to_lazy
from .device import DEVICE, device, disable, enable, is_lazy, register

__all__ = ["DEVICE", "__version__", "device", "disable", "enable", "from_lazy", "from_numpy", "is_lazy", "register", "to_lazy"]
