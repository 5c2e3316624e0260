"""Configurations: frozen dataclasses, validated on creation, overridden by `key=value`, to and from JSON.

    ModelConfig     a core
    TrainConfig     a training run
    ActConfig       a reinforcement-learning run: TrainConfig plus what A2C needs

Every field is documented where it is declared, and `feedback-transformer list fields` prints them.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Config = TypeVar("Config")

CORES = {"feedback": "Feedback Transformer", "transformer": "Transformer", "lstm": "LSTM"}
NORMS = ("pre", "post")
SOURCE_POSITIONS = ("sinusoidal", "relative", "neighbours")
SCHEDULES = ("constant", "linear", "cosine", "inverse-sqrt")
OPTIMIZERS = ("adam", "rmsprop")


class ConfigError(ValueError):
    """An invalid configuration; the message names the field, its value and the way out."""


def documented(default: Any, doc: str) -> Any:
    """A dataclass field with its documentation beside it."""
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True)
class ModelConfig:
    """A core: Feedback Transformer, Transformer or LSTM.

    >>> ModelConfig(num_layers=4, model_dim=256, num_heads=4).head_dim
    64
    """

    core: str = documented("feedback", "which core: feedback, transformer or lstm")
    num_layers: int = documented(2, "L, the number of layers")
    model_dim: int = documented(64, "D, the width of a layer's input and output")
    num_heads: int = documented(2, "H, the number of attention heads")
    head_dim: int = documented(0, "K, the width of a head; 0 means model_dim / num_heads")
    ff_dim: int = documented(0, "inner width of the feed-forward sublayer; 0 means 4 * model_dim")
    memory_size: int = documented(100, "S, how many past steps are attended to")
    memory: str = documented(
        "weighted-sum",
        "how a step's layers become its memory: weighted-sum (the paper), top, layer:K, average, "
        "recurrent or previous-layer (a standard Transformer)",
    )
    memory_top: float = documented(
        0.0, "weighted-sum: initial value of the top layer's weight w_L, where the others start at 0; else always 0"
    )
    memory_bottom: float = documented(0.0, "the same for the embedding's weight w_0")
    shared_kv: bool = documented(True, "one key and value projection for all layers; false: one per layer")
    norm: str = documented("pre", "layer norm before (pre) or after (post) each sublayer")
    dropout: float = documented(0.0, "dropout on attention probabilities and on the ReLU")
    embedding_dropout: float = documented(0.0, "dropout on the embedding's output")
    output_dropout: float = documented(0.0, "dropout on the last layer's output")
    position_std: float = documented(1.0, "initial standard deviation of the relative position keys")
    position_slopes: tuple[float, ...] = documented(
        (), "adds a learned bias per head over distance, starting at -slope * |distance - peak|; one slope per head"
    )
    position_peaks: tuple[int, ...] = documented(
        (),
        "the distances at which these biases start highest, one per head, so that a head reads the memory that many "
        "steps back; none: the nearest",
    )
    position_reach: int = documented(0, "distances beyond this share one position; 0 means none do")
    log_scale: bool = documented(
        False,
        "multiply scores by ln(n + 1) / 3 for n memories in sight, so attention stays sharp over more than in training",
    )
    adaptive_span: bool = documented(False, "each head learns how far back it looks, up to memory_size")
    span_ramp: int = documented(32, "R, the steps over which a span fades out")
    tie_weights: bool = documented(False, "the output layer shares the embeddings' weights")
    cutoffs: tuple[int, ...] = documented(
        (), "adaptive input and softmax: where the frequency-sorted vocabulary is cut into clusters, each narrower"
    )
    embedding_std: float = documented(1.0, "initial standard deviation of the token embeddings")
    scale_residuals: bool = documented(
        True, "initially divide each sublayer's last projection by the root of their number (pre-norm only)"
    )
    layer_drop: float = documented(0.0, "LayerDrop: the probability that a layer is left out of a block")
    encoder_layers: int = documented(0, "layers of the encoder for models that read a source (translation); else 0")
    source_positions: str = documented(
        "sinusoidal",
        "positions in the encoder: sinusoidal (added to the input), relative (a learned bias) or neighbours "
        "(convolution instead of attention)",
    )
    source_reach: int = documented(
        64, "relative: distances beyond this share one bias; neighbours: the convolution's reach to each side"
    )

    def __post_init__(self) -> None:
        check_types(self)
        if self.head_dim == 0 and self.num_heads > 0:
            if self.model_dim % self.num_heads:
                raise ConfigError(
                    f"ModelConfig.model_dim = {self.model_dim} is not a multiple of num_heads = {self.num_heads}; "
                    "change one of them or set head_dim"
                )
            object.__setattr__(self, "head_dim", self.model_dim // self.num_heads)
        if self.ff_dim == 0:
            object.__setattr__(self, "ff_dim", 4 * self.model_dim)
        if self.core != "feedback" or self.memory != "weighted-sum":
            object.__setattr__(self, "memory_top", 0.0)
            object.__setattr__(self, "memory_bottom", 0.0)
        one_of(self, "core", CORES)
        one_of(self, "norm", NORMS)
        one_of(self, "source_positions", SOURCE_POSITIONS)
        at_least(self, 1, "num_layers", "model_dim", "num_heads", "head_dim", "ff_dim", "memory_size", "span_ramp")
        at_least(self, 0, "encoder_layers", "source_reach", "position_reach", "position_std", "embedding_std")
        fractions(self, "dropout", "embedding_dropout", "output_dropout", "layer_drop", below_one=True)
        for name in ("position_slopes", "position_peaks"):
            if (given := getattr(self, name)) and len(given) != self.num_heads:
                raise ConfigError(
                    f"{_sentence(self, name)} has {len(given)} values for num_heads = {self.num_heads}; give one per "
                    "head, or none"
                )
        if any(not 0 <= peak <= self.memory_size for peak in self.position_peaks):
            raise ConfigError(f"{_sentence(self, 'position_peaks')} must be from 0 to memory_size = {self.memory_size}")
        if self.position_peaks and not self.position_slopes:
            raise ConfigError(f"{_sentence(self, 'position_peaks')} needs position_slopes, which fall away from them")
        if self.log_scale and self.adaptive_span:
            raise ConfigError("ModelConfig.log_scale = True cannot be combined with adaptive_span; set one to false")
        check_composition(self.memory, self.num_layers)


COMPOSITIONS = ("weighted-sum", "top", "layer:K", "average", "recurrent", "previous-layer")


def check_composition(name: str, num_layers: int) -> None:
    """`layer:K` must name a layer that exists (0 is the embedding); the others need only be known."""
    kind, _, index = name.partition(":")
    if kind == "layer" and index.isdecimal() and int(index) <= num_layers:
        return
    if kind == "layer" and index:
        raise ConfigError(f"ModelConfig.memory = {name!r}: choose a layer from 0 (the embedding) to {num_layers}")
    if name not in COMPOSITIONS or kind == "layer":
        raise ConfigError(f"ModelConfig.memory = {name!r} is not known; choose one of {', '.join(COMPOSITIONS)}")


@dataclass(frozen=True)
class TrainConfig:
    """A training run: its length, rate, data and evaluation."""

    steps: int = documented(1000, "number of updates")
    finetune_steps: int = documented(0, "updates added at the end at a tenth of the rate")
    batch_size: int = documented(32, "B, the number of parallel lanes")
    batch_tokens: int = documented(4096, "for pairs, instead of batch_size: tokens per side of a batch, with padding")
    accumulate: int = documented(1, "split the batch into (at most) this many parts per update, to use less memory")
    bptt: int = documented(64, "T, steps per block: gradients reach back this far")
    bptt_start: int = documented(0, "block length until bptt_warmup is over; 0 means bptt from the start")
    bptt_warmup: float = documented(0.5, "the fraction of the steps that use bptt_start")
    learning_rate: float = documented(1e-3, "Adam's rate after warm-up")
    warmup_steps: int = documented(100, "updates over which the rate rises from zero")
    schedule: str = documented(
        "constant", "the rate after warm-up: constant, linear or cosine (both down to zero) or inverse-sqrt"
    )
    adam_beta2: float = documented(0.999, "Adam's beta2")
    label_smoothing: float = documented(0.0, "the share of a label's probability that is spread over all symbols")
    span_loss: float = documented(0.0, "cost per step of adaptive span, added to the loss for each layer")
    gradient_clip: float = documented(0.1, "largest norm of the whole gradient; 0 means no clipping")
    curriculum: tuple[str, ...] = documented(
        (),
        "easier tasks to train on first, each as task overrides, for example length=6 or length=6,gate=0.9; the task "
        "itself comes last",
    )
    curriculum_gate: float = documented(0.75, "running accuracy that ends a stage, unless the stage sets its own gate")
    curriculum_deadline: float = documented(
        0.5, "the fraction of the steps after which the curriculum ends in any case, shared evenly by its stages"
    )
    train_episodes: int = documented(10_000, "size of the training set; 0 means fresh episodes throughout")
    validation_episodes: int = documented(1000, "size of the validation set, which picks the best checkpoint")
    test_episodes: int = documented(1000, "size of the test set, which is used once, at the end")
    eval_every: int = documented(200, "updates between evaluations on the validation set")
    checkpoint_seconds: float = documented(30.0, "seconds between checkpoints (evaluations always write one)")
    keep_checkpoints: int = documented(0, "keep the weights of this many last evaluations, for averaging")
    engine: str = documented("auto", "how Feedback computes a block: auto, native, fused, loop or fused+compile")
    patience: int = documented(0, "stop (and fine-tune) after this many evaluations without improvement; 0 means never")

    def __post_init__(self) -> None:
        check_types(self)
        if self.accumulate < 1 or self.batch_size % self.accumulate:
            raise ConfigError(
                f"TrainConfig.accumulate = {self.accumulate} must be 1 or more and divide batch_size {self.batch_size}"
            )
        at_least(
            self, 1, "steps", "batch_size", "bptt", "eval_every", "validation_episodes", "test_episodes", "batch_tokens"
        )
        at_least(
            self,
            0,
            "finetune_steps",
            "bptt_start",
            "warmup_steps",
            "train_episodes",
            "patience",
            "keep_checkpoints",
            "learning_rate",
            "span_loss",
            "gradient_clip",
            "checkpoint_seconds",
        )
        fractions(self, "bptt_warmup", "curriculum_deadline", "curriculum_gate")
        fractions(self, "adam_beta2", "label_smoothing", below_one=True)
        one_of(self, "schedule", SCHEDULES)
        if self.bptt_start > self.bptt:
            raise ConfigError(f"{_sentence(self, 'bptt_start')} must not exceed bptt = {self.bptt}, which it grows to")


@dataclass(frozen=True)
class ActConfig(TrainConfig):
    """A reinforcement-learning run by A2C: `batch_size` copies of the environment, `bptt` steps per block."""

    discount: float = documented(0.99, "gamma, the discount of rewards per step")
    trace: float = documented(1.0, "GAE's lambda, the weight of longer returns in the advantage; 1 is plain A2C")
    entropy_cost: float = documented(5e-4, "weight of the policy's entropy, which the loss rewards")
    value_cost: float = documented(0.5, "weight of the value's squared error in the loss")
    stagger: bool = documented(False, "in its first block each copy begins anew, at a step of its own")
    optimizer: str = documented("adam", "adam or rmsprop")
    optimizer_epsilon: float = documented(1e-8, "added to the optimizer's denominator")

    def __post_init__(self) -> None:
        super().__post_init__()
        fractions(self, "discount", "trace")
        at_least(self, 0, "entropy_cost", "value_cost")
        at_least(self, 1e-12, "optimizer_epsilon")
        one_of(self, "optimizer", OPTIMIZERS)
        if self.accumulate > 1:
            raise ConfigError(f"{_sentence(self, 'accumulate')} must be 1 for A2C; choose a smaller batch_size instead")


# ------------------------------------------------------------------------------------------------ checks


def check_types(config: Any) -> None:
    """Check that every field has its declared type, which numbers of another kind (2.0, numpy's) are converted to."""
    for name, wanted in field_types(type(config)).items():
        value = getattr(config, name)
        try:
            parsed = _parse(wanted, value)
            right = (wanted is str or not isinstance(value, str)) and parsed == value
        except (ValueError, TypeError, OverflowError):
            right = False
        if not right:
            raise ConfigError(_expected(type(config), name, wanted, value))
        object.__setattr__(config, name, parsed)


def _sentence(config: Any, name: str) -> str:
    return f"{type(config).__name__}.{name} = {getattr(config, name)!r}"


def one_of(config: Any, name: str, choices: Iterable[str]) -> None:
    if getattr(config, name) not in choices:
        raise ConfigError(f"{_sentence(config, name)} is not known; choose one of {', '.join(choices)}")


def at_least(config: Any, least: float, *names: str) -> None:
    for name in names:
        if not least <= getattr(config, name) < math.inf:
            raise ConfigError(f"{_sentence(config, name)} must be {least} or more")


def fractions(config: Any, *names: str, below_one: bool = False) -> None:
    for name in names:
        value = getattr(config, name)
        if not 0 <= value <= 1 or (below_one and value == 1):
            raise ConfigError(
                f"{_sentence(config, name)} must be from 0 {'up to, but not including,' if below_one else 'to'} 1"
            )


# --------------------------------------------------------------------------------------- overrides and JSON


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'a' or 'b'?`, or the whole list if no name is close."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if close:
        return f"; did you mean {' or '.join(repr(word) for word in close)}?"
    return f"; choose one of {', '.join(known)}"


def from_dict(kind: type[Config], values: Mapping[str, Any]) -> Config:
    """A config from a plain dictionary, with every name and type checked."""
    fields = field_types(kind)
    for name in values:
        if name not in fields:
            raise ConfigError(f"{kind.__name__} has no field {name!r}{nearest(name, fields)}")
    return kind(**{name: _coerce(kind, name, fields[name], value) for name, value in values.items()})


def to_dict(config: Any) -> dict[str, Any]:
    """The config as JSON can hold it; `from_dict` restores it."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(config).items()}


def override(config: Config, assignments: Mapping[str, str]) -> Config:
    """`override(config, {"num_layers": "4"})`: text values parsed by the field's type, then checked as a whole.

    Fields that were derived from others (head_dim, ff_dim) are derived again unless they are named.
    """
    kind = type(config)
    values = {**to_dict(config), **_underived(config), **assignments}
    return from_dict(kind, values)


def _underived(config: Any) -> dict[str, Any]:
    """Fields that equal their derived default, set back to zero so that they follow a change."""
    if not isinstance(config, ModelConfig):
        return {}
    derived = {"head_dim": config.model_dim / config.num_heads, "ff_dim": 4 * config.model_dim}
    return {name: 0 for name, value in derived.items() if getattr(config, name) == value}


def field_types(kind: Any) -> Mapping[str, Any]:
    """Field name -> its type, for a dataclass."""
    return _read_field_types(kind)


@functools.cache  # slow, and a table of experiments makes hundreds of configurations
def _read_field_types(kind: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(kind)
    return types.MappingProxyType({f.name: hints[f.name] for f in dataclasses.fields(kind) if f.init})


def _coerce(kind: type, name: str, wanted: Any, value: Any) -> Any:
    """Convert text or JSON to the field's type, or raise an error that says what was expected."""
    try:
        return _parse(wanted, value)
    except (ValueError, TypeError, SyntaxError, OverflowError):
        raise ConfigError(_expected(kind, name, wanted, value)) from None


def _expected(kind: type, name: str, wanted: Any, value: Any) -> str:
    expected = getattr(wanted, "__name__", str(wanted)) if not typing.get_args(wanted) else str(wanted)
    finite = ", and finite" if wanted is float else ""
    return f"{kind.__name__}.{name} = {value!r} is not of type {expected}{finite}"


def _parse(wanted: Any, value: Any) -> Any:
    if typing.get_origin(wanted) is tuple:
        return _parse_tuple(typing.get_args(wanted)[0], value)
    if wanted is bool:
        known = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
        if str(value).lower() not in known:
            raise ValueError
        return known[str(value).lower()]
    if wanted is int:
        number = float(value)
        if isinstance(value, bool) or number != int(number):
            raise ValueError
        return int(value) if not isinstance(value, str) or value.lstrip("+-").isdigit() else int(number)
    if wanted is float:
        if isinstance(value, bool) or not math.isfinite(float(value)):
            raise ValueError
        return float(value)
    if wanted is str:
        if not isinstance(value, str):
            raise ValueError
        return value
    if typing.get_origin(wanted) in (types.UnionType, typing.Union):
        return None if value is None else _parse(typing.get_args(wanted)[0], value)
    raise TypeError(f"a config field of type {wanted} cannot be read")


def _parse_tuple(item: Any, value: Any) -> tuple[Any, ...]:
    """`2,0.1` or `(2, 0.1)` for numbers; `length=6;length=12` for texts."""
    if isinstance(value, str):
        if item is str:
            value = [part.strip() for part in value.split(";") if part.strip()]
        else:
            value = ast.literal_eval(f"[{value.strip('()[] ')}]")
    return tuple(_parse(item, part) for part in value)


def parse_assignments(texts: Iterable[str]) -> dict[str, str]:
    """`["num_layers=4", "dropout=0.1"]` -> a dictionary, split at the first `=`."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{text!r} is not an override; write it as field=value, for example num_layers=4")
        pairs[name.strip()] = value.strip()
    return pairs
