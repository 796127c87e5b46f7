"""A barrier after every optimizer step, without a marker in the training loop.

Owns: torch's global step-post hook. The barrier becomes due at the step and is cut when the next operation is recorded: by then
`zero_grad` has dropped the gradients, which would otherwise all be outputs of the program.
"""

from __future__ import annotations

from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from . import build


def install() -> None:
    """Register the hook; once."""
    due = build.native().set_barrier_due

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        due()

    register_optimizer_step_post_hook(after_step)
