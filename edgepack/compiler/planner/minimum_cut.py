"""The minimum cut of a directed graph, by Dinic's algorithm (Soviet Mathematics Doklady 11, 1970)."""

from __future__ import annotations

from collections import deque

__all__ = ["FlowGraph"]


class FlowGraph:
    """Nodes 0 to ``nodes - 1`` and edges with capacities; the same edges in the same order give the same cut.

    Capacities are integers: sums of them are exact.
    """

    def __init__(self, nodes: int) -> None:
        self._heads: list[int] = []
        self._left: list[int] = []
        self._edges: list[list[int]] = [[] for _ in range(nodes)]

    def connect(self, tail: int, head: int, capacity: int) -> None:
        """Adds an edge; its reverse, for flow that is taken back, is the edge of the number beside it."""
        for node, other, left in ((tail, head, capacity), (head, tail, 0)):
            self._edges[node].append(len(self._heads))
            self._heads.append(other)
            self._left.append(left)

    def sink_side(self, source: int, sink: int) -> set[int]:
        """The nodes on the sink's side of a minimum cut: of all such cuts the one with the fewest there."""
        while (levels := self._levels(source))[sink] >= 0:
            following = [0] * len(self._edges)
            while path := self._path(source, sink, levels, following):
                flow = min(self._left[edge] for edge in path)
                for edge in path:
                    self._left[edge] -= flow
                    self._left[edge ^ 1] += flow
        return self._reaching(sink)

    def _levels(self, source: int) -> list[int]:
        """How many edges lead from the source to each node; -1 where none do."""
        levels = [-1] * len(self._edges)
        levels[source] = 0
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for edge in self._edges[node]:
                head = self._heads[edge]
                if self._left[edge] and levels[head] < 0:
                    levels[head] = levels[node] + 1
                    queue.append(head)
        return levels

    def _path(self, source: int, sink: int, levels: list[int], following: list[int]) -> list[int]:
        """Edges of a shortest path with capacity left; ``following`` is the first edge of each node that may
        still lead to the sink."""
        path: list[int] = []
        node = source
        while node != sink:
            if following[node] == len(self._edges[node]):
                if node == source:
                    return []
                node = self._heads[path.pop() ^ 1]
                following[node] += 1
                continue
            edge = self._edges[node][following[node]]
            if self._left[edge] and levels[self._heads[edge]] == levels[node] + 1:
                path.append(edge)
                node = self._heads[edge]
            else:
                following[node] += 1
        return path

    def _reaching(self, sink: int) -> set[int]:
        """The nodes from which capacity is left to the sink."""
        found, queue = {sink}, deque([sink])
        while queue:
            for edge in self._edges[queue.popleft()]:
                tail = self._heads[edge]
                if self._left[edge ^ 1] and tail not in found:
                    found.add(tail)
                    queue.append(tail)
        return found
