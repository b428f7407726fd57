"""The registry of cases. It is a module of its own, as `trainings.py` runs as `__main__`."""

from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Case:
    """A training with a fault and its fix."""

    kind: str
    """The kind of finding that names the fault."""
    model: str
    fix: str
    shapes: bool
    """Whether the shapes of operands are recorded. Every other case does, as some users do and others do not."""
    rounds: int
    """How many times each variant is timed."""
    build: Callable[[bool], Callable[[], object]]
    """Takes whether to have the fault, and returns a function that runs a step."""


CASES: dict[str, Case] = {}


def case(kind, model, fix, *, shapes, rounds=5):
    """Registers the decorated function as `Case.build`, named after it."""

    def register(build):
        CASES[build.__name__.replace("_", "-")] = Case(kind, model, fix, shapes, rounds, build)
        return build

    return register
