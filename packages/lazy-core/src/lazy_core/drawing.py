"""A small graph as a picture: SVG from a graph's text (see `dump.graph_text`).

Owns: the layout.  Operations stand in layers, operands above; within a layer they stand below the middle of their operands.  Imports
nothing of the package.

Source: the layers and the order by barycentres are those of Sugiyama, Tagawa and Toda (1981), without their crossing counts.
"""

from __future__ import annotations

import html
import re
from typing import NamedTuple

_LINE = re.compile(r"^%(\d+) = (\w+\[[\d,]*\](?:, \w+\[[\d,]*\])*) (.*?)(?:    # (.*))?$")
_OPERAND = re.compile(r"%(\d+)")
_LEAVES = {"leaf": "buffer", "scalar": "number fed"}
_NODE_HEIGHT, _LAYER_HEIGHT, _GAP, _CHARACTER = 34, 64, 14, 6.6
MOST_NODES = 150


class _Node(NamedTuple):
    number: str
    title: str  # the operation
    below: str  # its shape
    site: str
    operands: tuple[str, ...]


def draw(text: str) -> str | None:
    """The picture of a graph, or None if it is empty or has more nodes than anybody could read (`MOST_NODES`)."""
    nodes = _parse(text)
    if not 0 < len(nodes) <= MOST_NODES:
        return None
    layers = _layers(nodes)
    middle, width = _places(layers)
    top = {node.number: 10 + k * _LAYER_HEIGHT for k, layer in enumerate(layers) for node in layer}
    edges, boxes = [], []
    for node in nodes:
        x, y = middle[node.number], top[node.number]
        for operand in dict.fromkeys(node.operands):
            x0, y0 = middle[operand], top[operand] + _NODE_HEIGHT
            bend = (y - y0) / 2
            edges.append(f'<path d="M{x0:.1f} {y0} C{x0:.1f} {y0 + bend:.0f} {x:.1f} {y - bend:.0f} {x:.1f} {y}"/>')
        w = _width(node)
        kind = "operation" if node.site or node.operands else "leaf"
        boxes.append(
            f'<g class="{kind}"><title>{html.escape(f"%{node.number} {node.title}  {node.site}".strip())}</title>'
            f'<rect x="{x - w / 2:.1f}" y="{y}" width="{w:.1f}" height="{_NODE_HEIGHT}" rx="6"/>'
            f'<text x="{x:.1f}" y="{y + 14}">{html.escape(node.title)}</text>'
            f'<text class="shape" x="{x:.1f}" y="{y + 27}">{html.escape(node.below)}</text></g>'
        )
    height = 20 + len(layers) * _LAYER_HEIGHT - (_LAYER_HEIGHT - _NODE_HEIGHT)
    return (
        f'<svg class="drawing" viewBox="0 0 {width:.0f} {height}" style="width:{width:.0f}px" role="img" aria-label="graph">'
        f'<g class="edges">{"".join(edges)}</g>{"".join(boxes)}</svg>'
    )


def _parse(text: str) -> list[_Node]:
    nodes = []
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is not None:
            number, shape, body, site = found.groups()
            name = body.partition("(")[0]
            title = body if name == "const" else _LEAVES.get(name, name)
            nodes.append(_Node(number, title, shape, site or "", tuple(_OPERAND.findall(body))))
    return nodes


def _width(node: _Node) -> float:
    return 16 + _CHARACTER * max(len(node.title), len(node.below))


def _layers(nodes: list[_Node]) -> list[list[_Node]]:
    """Operations one below the lowest of their operands; leaves right above the first operation that reads them."""
    depth: dict[str, int] = {}
    for node in nodes:
        depth[node.number] = 1 + max((depth[o] for o in node.operands), default=0)
    for node in reversed(nodes):
        if not node.operands:
            readers = [depth[other.number] for other in nodes if node.number in other.operands]
            depth[node.number] = min(readers, default=2) - 1
    layers: list[list[_Node]] = [[] for _ in range(max(depth.values()) + 1)]
    for node in nodes:
        layers[depth[node.number]].append(node)
    return [layer for layer in layers if layer]


def _places(layers: list[list[_Node]]) -> tuple[dict[str, float], float]:
    """The middle of each node, and the width of the whole; layers are sorted in place."""
    middle: dict[str, float] = {}
    readers: dict[str, list[str]] = {}
    for layer in layers:
        for node in layer:
            for operand in node.operands:
                readers.setdefault(operand, []).append(node.number)
    for layer in layers:
        wanted = {n.number: sum(middle[o] for o in n.operands) / len(n.operands) if n.operands else 1e9 for n in layer}
        layer.sort(key=lambda n: wanted[n.number])
        right = 0.0
        for node in layer:
            half = _width(node) / 2
            place = max(right + half, wanted[node.number] if node.operands else 0.0)
            middle[node.number] = place
            right = place + half + _GAP
    for layer in reversed(layers[:-1]):  # leaves, placed last in their layers, move above what reads them, as far as there is room
        for k in range(len(layer) - 1, -1, -1):
            node, half = layer[k], _width(layer[k]) / 2
            below = [middle[r] for r in readers.get(node.number, ())]
            low = middle[layer[k - 1].number] + _width(layer[k - 1]) / 2 + _GAP + half if k else half
            high = middle[layer[k + 1].number] - _width(layer[k + 1]) / 2 - _GAP - half if k + 1 < len(layer) else float("inf")
            if below:
                middle[node.number] = max(low, min(high, sum(below) / len(below)))
    left = min(middle[n.number] - _width(n) / 2 for layer in layers for n in layer) - 10
    middle = {number: place - left for number, place in middle.items()}
    return middle, max(middle[n.number] + _width(n) / 2 for layer in layers for n in layer) + 10
