"""A small convolutional network with batch normalisation on scikit-learn's digits, Adam: `python torch_cnn.py [cpu|lazy]`."""

import argparse
import json
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """Two convolutions with batch normalisation, pooling, and a linear classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(32)
        self.classify = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images f32[n,1,8,8] to log-odds f32[n,10]."""
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return self.classify(x.flatten(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    device = torch.device(args.device)

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)

    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(images[:1500], labels[:1500]), batch_size=100, shuffle=True)
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    losses, step_ends = [], []
    for epoch in range(args.epochs):
        model.train()
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            step_ends.append(time.time())
        print(f"epoch {epoch + 1}: loss {sum(losses[-len(loader) :]) / len(loader):.4f}")

    model.eval()
    with torch.no_grad():
        guesses = model(images[1500:].to(device)).argmax(dim=1)
        accuracy = (guesses == labels[1500:].to(device)).float().mean().item()
    print(f"test accuracy {accuracy:.4f}")
    if args.json:
        print(json.dumps({"result": "test accuracy", "value": accuracy, "curve": losses, "step_ends": step_ends}))


if __name__ == "__main__":
    main()
