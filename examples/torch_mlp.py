"""A two-layer perceptron on scikit-learn's digits, SGD with momentum and a learning-rate schedule: `python torch_mlp.py [cpu|lazy]`."""

import argparse
import json
import time

import torch
from sklearn.datasets import load_digits
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    device = torch.device(args.device)

    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    train_x, train_y = images[:1500].to(device), labels[:1500].to(device)
    test_x, test_y = images[1500:].to(device), labels[1500:].to(device)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * 15)
    criterion = nn.CrossEntropyLoss()

    losses, step_ends = [], []
    for epoch in range(args.epochs):
        order = torch.randperm(1500)
        for batch in order.split(100):
            batch = batch.to(device)
            optimizer.zero_grad()
            loss = criterion(model(train_x[batch]), train_y[batch])
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            step_ends.append(time.time())
        print(f"epoch {epoch + 1}: loss {sum(losses[-15:]) / 15:.4f}")

    model.eval()
    with torch.no_grad():
        accuracy = (model(test_x).argmax(dim=1) == test_y).float().mean().item()
    print(f"test accuracy {accuracy:.4f}")
    if args.json:
        print(json.dumps({"result": "test accuracy", "value": accuracy, "curve": losses, "step_ends": step_ends}))


if __name__ == "__main__":
    main()
