"""What is measured: the shape of a training step, and the arithmetic in it. T is 64 unless a shape says otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from feedback_transformer.config import ConfigError, ModelConfig


@dataclass(frozen=True)
class Shape:
    """A training step: B rows of T steps, every row with a full memory of S slots."""

    name: str
    model_dim: int
    num_layers: int
    num_heads: int
    memory_size: int
    batch: int
    steps: int = 64
    span: int = 0  # of every head, with adaptive spans; 0: without
    long_heads: int = 0  # of the top layer's heads, these see the whole memory

    def config(self, core: str, dropout: float = 0.0, shared_kv: bool = True) -> ModelConfig:
        # A Transformer by definition has separate keys and values in every layer.
        return ModelConfig(
            core=core,
            num_layers=self.num_layers,
            model_dim=self.model_dim,
            num_heads=self.num_heads,
            memory_size=self.memory_size,
            dropout=dropout,
            shared_kv=shared_kv and core == "feedback",
            adaptive_span=self.span > 0,
        )

    @property
    def tokens(self) -> int:
        return self.batch * self.steps

    def arithmetic(self, shared_kv: bool = True) -> int:
        """Floating-point operations in the matrix products of one Feedback training step, forward and backward.

        A weight's product is computed three times (y = W x, dx = W' dy, dW = dy x'), and so is each of attention's
        three (with keys, values and positions); the carried memories are inputs, so their projections need no dx.
        """
        width, inner = self.model_dim, 4 * self.model_dim
        pairs = 1 if shared_kv else self.num_layers
        weights = self.num_layers * (2 * width * width + 2 * width * inner) + pairs * 2 * width * width
        attention = self.num_layers * 3 * self.memory_size * width
        carried = 2 * self.batch * self.memory_size * pairs * 2 * width * width
        return 2 * 3 * self.tokens * (weights + attention) + 2 * carried


SHAPES = (
    Shape("d256 L4 S100 B16", 256, 4, 4, 100, 16),
    Shape("d256 L4 S100 B64", 256, 4, 4, 100, 64),
    Shape("d128 L2 S100 B64", 128, 2, 4, 100, 64),
    Shape("d256 L4 S512 B32", 256, 4, 4, 512, 32),
    Shape("random walk", 64, 2, 2, 100, 64, steps=16),  # d64 L2 S100 B64, as `feedback-transformer demo` trains
)
QUICK = (Shape("d32 L2 S16 B4", 32, 2, 2, 16, 4, steps=8),)


def find_shapes(names: list[str]) -> tuple[Shape, ...]:
    """The shapes whose name contains one of the given texts; all if none is given."""
    found = tuple(shape for shape in SHAPES if not names or any(name in shape.name for name in names))
    if not found:
        known = ", ".join(shape.name for shape in SHAPES)
        raise ConfigError(f"no shape has {' or '.join(names)} in its name; choose among {known}")
    return found
