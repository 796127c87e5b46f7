"""Time to the first loss of a transformer, in a first process and in a second one that finds the disk cache filled.

    python benchmarks/second_process.py [--steps 1] [--repeat 2]

A BERT-like encoder in plain torch trains with AdamW.  Each run is a process of its own with `LAZY_CACHE_DIR` in a temporary folder: the
first run compiles, the later ones load.  The clock starts when the model exists on the CPU and stops when the host holds the
first loss.  What comes before is the same on both sides and is shown apart: imports, those of the first optimizer included.  Beside the
time of the clock stands the processor's, which a busy neighbour does not change; pin the whole to one core and they are one
(`taskset -c 0 python benchmarks/second_process.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

VOCABULARY, WIDTH, LAYERS, HEADS, INNER, LENGTH, BATCH, CLASSES = 1000, 256, 4, 4, 1024, 64, 8, 2


def run(steps: int) -> None:
    """One process: train, and print the seconds to the first loss and the counters as JSON."""
    begin = time.perf_counter()
    import torch
    import torch._dynamo  # which the first optimizer of a process imports, for over a second
    from torch import nn
    from torch.nn import functional

    import lazy_core

    class Block(nn.Module):
        """Self-attention and two dense layers, each with a residual and a norm after it."""

        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
            self.inner, self.outer = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
            self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
            attended = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = self.first(x + self.out(attended))
            return self.second(x + self.outer(functional.gelu(self.inner(x))))

    class Encoder(nn.Module):
        """Embeddings, the blocks, and a classifier on the first position."""

        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
            self.norm, self.blocks = nn.LayerNorm(WIDTH), nn.Sequential(*[Block() for _ in range(LAYERS)])
            self.pooler, self.classes = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            positions = torch.arange(ids.shape[1], device=ids.device)
            x = self.blocks(self.norm(self.tokens(ids) + self.positions(positions)))
            return self.classes(torch.tanh(self.pooler(x[:, 0])))

    torch.manual_seed(0)
    model = Encoder()
    ids, labels = torch.randint(0, VOCABULARY, (BATCH, LENGTH)), torch.randint(0, CLASSES, (BATCH,))
    built, processor = time.perf_counter(), time.process_time()
    model, ids, labels = model.to("lazy"), ids.to("lazy"), labels.to("lazy")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses, seconds, used = [], [], 0.0
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(ids), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - built)
        used = used or time.process_time() - processor
    counters = lazy_core.report().counters
    print(json.dumps({"before": built - begin, "seconds": seconds, "processor": used, "losses": losses, **counters}))


def main() -> None:
    """Print a row for each process, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=2, help="processes after the first")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        run(args.steps)
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = os.path.join(folder, "bytecode")  # as an installed package has it
        environment["LAZY_TIER"] = "compiled"
        for k in range(-1, 1 + args.repeat):  # one before the first, without the disk cache, so that Python's bytecode files exist
            environment["LAZY_CACHE_DIR"] = os.path.join(folder, "cache") if k >= 0 else "off"
            command = [sys.executable, __file__, "--child", "--steps", str(args.steps)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            if done.returncode:
                sys.exit(done.stderr)
            if k < 0:
                continue
            row = json.loads(done.stdout.splitlines()[-1])
            rows.append(row)
            print(
                f"process {k + 1}: imports and model {row['before']:.2f} s, then first loss after {row['seconds'][0]:.2f} s, "
                f"{row['processor']:.2f} s of them on the processor "
                f"(all {args.steps} after {row['seconds'][-1]:.2f} s), {row['compiles']} compiles, {row['disk_hits']} from disk, "
                f"first loss {row['losses'][0]:.6f}"
            )
    first, later = rows[0], min(rows[1:], key=lambda row: row["seconds"][0])
    whole = (first["before"] + first["seconds"][0]) / (later["before"] + later["seconds"][0])
    print(
        f"the second process reaches its first loss {first['seconds'][0] / later['seconds'][0]:.1f} times sooner "
        f"(processor time {first['processor'] / min(row['processor'] for row in rows[1:]):.1f} times; with imports {whole:.1f})"
    )
    if first["losses"] != later["losses"]:
        sys.exit(f"the losses differ: {first['losses']} and {later['losses']}")


if __name__ == "__main__":
    main()
