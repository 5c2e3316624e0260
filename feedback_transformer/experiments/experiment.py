"""An experiment: which runs test which of the paper's claims, with the paper's numbers as data.

    Variant      a row of its table: one configuration, trained with several seeds
    Elsewhere    a row with a published result and its source
    Claim        one variant is better than another; the records say whether that holds
    Experiment   all of these, for one table or figure of the paper

A run's record is kept as results/KEY-seed-N.json. Experiments that share a variant share its records.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from feedback_transformer.config import ConfigError
from feedback_transformer.presets import SMALLER, preset
from feedback_transformer.training.record import read_record
from feedback_transformer.training.run import RunConfig

Record = dict[str, Any]
SEEDS: tuple[int, ...] = (0, 1, 2)
CLOSE = 0.02  # of a score: scores within it count as equal, and one seed cannot tell them apart
ALONE = 0.1  # of a score: what single seeds must differ by where the spread over seeds is unknown; `close` twice, too
OURS = " (our question)"  # behind a claim that is not the paper's
UNLEARNED = "not decided: neither has learned it"
SCORED, COUNTED = ("test", "best", "curve"), ("parameters", "tokens", "cpu_seconds")  # parts of a finished record
STUDENT = {2: 4.30, 3: 3.18, 4: 2.78}  # 97.5% quantile of t by degrees of freedom: four for three seeds per model


def seeds_at(scale: str) -> tuple[int, ...]:
    """One on a laptop, where runs are too costly for more. Differences as small as the paper's need several."""
    return SEEDS if scale == "paper" else SEEDS[:1]


@dataclass(frozen=True)
class Variant:
    """One configuration. `paper` is the paper's number for it; None where it gives none, or only a figure.

    Where a table has several scores, `paper` is keyed by their names: {"character": 0.762, "sequence": 0.236}.
    """

    key: str  # of its records: folder/name
    label: str
    run: RunConfig
    paper: float | Mapping[str, float] | None = None
    place: float | None = None  # on the x-axis, where the figure has one
    line: str = ""  # and the line it belongs to
    seeds: tuple[int, ...] = SEEDS

    def runs(self, count: int | None = None) -> dict[str, RunConfig]:
        """Record key -> run, for the planned seeds or the first `count`."""
        seeds = self.seeds if count is None else range(count)
        return {f"{self.key}-seed-{seed}": replace(self.run, seed=seed) for seed in seeds}

    def published(self, score: str) -> float | None:
        """The paper's number for one of the scores."""
        return self.paper.get(score) if isinstance(self.paper, Mapping) else self.paper

    def records(self, results: Path) -> list[Record]:
        """The finished records of exactly this run, with any seed."""
        behind = (path.stem.rpartition("-")[2] for path in results.glob(f"{self.key}-seed-*.json"))
        seeds = sorted({int(seed) for seed in behind if seed.isdecimal()})  # and not "0 (copy)"
        found = [kept_record(results, f"{self.key}-seed-{seed}", replace(self.run, seed=seed)) for seed in seeds]
        return [record for record in found if record]


@dataclass(frozen=True)
class Elsewhere:
    """A published result on the same task: numbers by score, and their source."""

    label: str
    numbers: Mapping[str, float]
    source: str


@dataclass(frozen=True)
class Claim:
    """`better` scores better than `worse`, or (`equal`) about as well; both are keys of variants.

    With `than`, also a pair of keys: the lead is larger than that of the first of the pair over the second.
    """

    words: str
    better: str
    worse: str
    equal: bool = False
    or_better: bool = False  # with `equal`: better is fine too
    score: str = ""  # the score to compare by; the experiment's first by default
    than: tuple[str, str] | None = None
    chance: float | None = None  # a score reachable without learning: if neither exceeds it, nothing is decided
    ours: bool = False  # our own question, not a claim of the paper
    unequal: bool = False  # the two are meant to be trained on different amounts of data
    published: bool = False  # `worse` is the label of a published result, with which only full scale can be compared

    def compared(self) -> set[str]:
        return {self.better, *(() if self.published else (self.worse,)), *(self.than or ())}

    def asked(self) -> Claim:
        """The question alone, so that equal questions compare equal; the two sides of a match have no order."""
        sides = self.better, self.worse
        better, worse = sorted(sides) if self.equal and not self.or_better else sides
        return replace(self, words="", better=better, worse=worse)


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper. At a scale (smoke, laptop or paper), `variants` gives its rows and `claims`
    what they should show."""

    name: str
    title: str
    where: str  # in the paper; empty for one of our own
    reduced: str  # what the laptop scale makes smaller
    variants: Callable[[str], list[Variant]]
    claims: Callable[[str], tuple[Claim, ...]]  # at a scale
    axis: str = ""  # what the figure's x-axis is
    scores: tuple[str, ...] = ()  # columns of the table, as named in a record's test; the first ranks and is drawn
    elsewhere: tuple[Elsewhere, ...] = ()
    afterwards: str = ""  # what the paper does with its trained models that a run does not do by itself
    prepare: str = ""  # arguments of `prepare` that make its laptop data, if the corpus alone does not say it
    match: float = 0.0  # the largest difference that counts as a match, in the score's unit; 0: CLOSE of the score
    endings: bool = False  # the last evaluation is judged too, because runs may lose what they have learned
    least: float = 0.0  # smaller differences between single seeds do not count, however low the scores
    development: bool = False  # the paper reports the development set, so we report the validation set
    one_machine: bool = True  # all its records are from one machine, so their speeds can be compared

    @property
    def place(self) -> str:
        return self.where or "not in the paper"

    @property
    def place_in_words(self) -> str:
        return f"In the paper: {self.where}." if self.where else "Not in the paper."

    def prepare_command(self, scale: str) -> str:
        """The command that makes its data; empty where it needs none."""
        variants = self.variants(scale)
        if not variants or not hasattr(variants[0].run.task, "data"):
            return ""
        corpus = self.prepare if self.prepare and scale != "paper" else variants[0].run.task_name
        return f"feedback-transformer prepare {corpus}"

    def runs(self, scale: str, count: int | None = None) -> dict[str, RunConfig]:
        return {key: run for variant in self.variants(scale) for key, run in variant.runs(count).items()}


def kept_record(results: Path, key: str, run: RunConfig) -> Record | None:
    """The record kept under this key, if it is a finished one of exactly this run."""
    record, differences = kept_in_place(results / f"{key}.json", run)
    return None if differences else record


def refuse_other_record(results: Path, key: str, run: RunConfig) -> None:
    """An error if there is a finished record of another run in the place of this run's."""
    path = results / f"{key}.json"
    _, differences = kept_in_place(path, run)
    if differences:
        raise ConfigError(f"{path} is the record of another run ({differences[0]}); remove it, or name other --results")


def kept_in_place(path: Path, run: RunConfig) -> tuple[Record | None, list[str]]:
    """The finished record at this place, and in what it differs from this run, but for where its data is stored."""
    record = read_record(path) if path.exists() else {}
    if not record.get("finished"):
        return None, []
    try:
        check_numbers(record)
        found = RunConfig.from_dict(record["run"]).differences(run)
    except (ConfigError, KeyError, AttributeError) as error:
        raise ConfigError(f"{path} is not the record of a run ({error}); fetch it again, or remove it") from None
    return record, [difference for difference in found if not difference.startswith("task.data ")]


def check_numbers(record: Record) -> None:
    """An error for a finished record in which a part is missing, or what should be numbers is not."""
    if lost := {*SCORED, *COUNTED, "environment"} - record.keys():
        raise KeyError(f"it has no {', '.join(sorted(lost))}")
    for part in SCORED:
        rows = record[part] if part == "curve" else [record[part]]
        if not rows or not all(row and row.keys() - {"step"} and all(map(is_finite, row.values())) for row in rows):
            raise KeyError(f"its {part} holds no scores")
    for part in COUNTED:
        if not is_finite(record[part]):
            raise KeyError(f"its {part} is {record[part]!r}")


def is_finite(number: object) -> bool:
    return isinstance(number, int | float) and math.isfinite(number)


def train_command(run: RunConfig, scale: str) -> str:
    """The command that trains this run alone, starting from the closest preset of that scale."""
    presets = (scale, SMALLER.get((run.task_name, scale), scale))
    return min((_train_command(run, name) for name in presets), key=len)


def _train_command(run: RunConfig, scale: str) -> str:
    start = preset(run.task_name, scale, run.model.core, run.seed)
    words = ["feedback-transformer", "train", run.task_name, *(["--preset", scale] if scale != "laptop" else [])]
    words += [f"core={run.model.core}"] if run.model.core != "feedback" else []
    for section, config in run.sections().items():
        before = start.sections()[section]
        for name in vars(config):
            if (value := getattr(config, name)) != getattr(before, name):
                between = ";" if isinstance(value, tuple) and isinstance(value[0] if value else 0, str) else ","
                text = between.join(map(str, value)) if isinstance(value, tuple) else str(value)
                words.append(f"{name}={text}")
    return " ".join([*map(shlex.quote, words), "--seed", str(run.seed), "--threads", "1"])


# ------------------------------------------------------------------------------------------------ what came out


@dataclass(frozen=True)
class Score:
    """A variant's test score over its seeds; or (`exact`) a published number, which is taken as it is."""

    values: tuple[float, ...]
    exact: bool = False

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    @property
    def spread(self) -> float:
        """Standard deviation between seeds; 0 for one."""
        if len(self.values) < 2:
            return 0.0
        return math.sqrt(sum((value - self.mean) ** 2 for value in self.values) / (len(self.values) - 1))


def verdict(
    claim: Claim,
    better: Score,
    worse: Score,
    lower_is_better: bool,
    widest: float | None = None,
    close: float | None = None,
    level: float | None = None,
) -> str:
    """Whether the claim held: a difference counts when it is outside its 95% confidence interval (Student's t).

    `widest` is the largest known spread between seeds of such scores, assumed for pairs with fewer than two degrees of
    freedom; where none is known, single seeds must differ by `ALONE` of the `level` (default: the larger score) and by
    twice `close` to count. Scores that are claimed to match may differ by `close` (default: `CLOSE` of the score),
    noise included; single seeds must differ by more than that to count.

    >>> verdict(Claim("", "a", "b"), Score((1.0, 1.1)), Score((2.0, 2.1)), lower_is_better=True)
    'holds'
    """
    gain = (worse.mean - better.mean) if lower_is_better else (better.mean - worse.mean)
    noise = confidence(better, worse, widest or 0.0)
    close = CLOSE * abs(worse.mean) if close is None else close
    counts = [len(score.values) for score in (better, worse) if not score.exact]
    seeds, unknown = min(counts), widest is None and max(counts) == 1
    level = max(abs(better.mean), abs(worse.mean)) if level is None else level
    same = "both score the same" if gain == better.spread == worse.spread == 0 else "within the noise"
    if claim.chance is not None and max(better.mean, worse.mean) <= claim.chance:
        answer = f"{UNLEARNED}, none scores above {claim.chance:g}"
    elif unknown and abs(gain) <= max(ALONE * level, 2 * close):
        answer = "not decided: the spread over seeds is unknown"
    elif claim.or_better and gain - noise >= -close:
        answer = "holds"
    elif claim.equal and abs(gain) - noise > close:
        answer = f"does not hold: {'better' if gain > 0 else 'worse'} by {abs(gain):.3g}"
    elif claim.equal and abs(gain) + noise <= close:
        answer = "holds"
    elif claim.equal or abs(gain) <= (noise if seeds > 1 else max(noise, close)):
        answer = f"not decided: {same}"
    else:
        answer = "holds" if gain > 0 else "does not hold"
    return answer if seeds > 1 else f"{answer} (one seed)"


def confidence(a: Score, b: Score, widest: float) -> float:
    """Half the width of the 95% confidence interval of the difference of two means, the seeds' variances pooled.

    >>> round(confidence(Score((1.0, 2.0, 3.0)), Score((4.0, 5.0, 6.0)), 0.0), 3)
    2.27
    >>> round(confidence(Score((1.0, 2.0, 3.0)), Score((4.0,), exact=True), 0.0), 3)
    2.483
    """
    measured = [score for score in (a, b) if not score.exact]
    counts = [len(score.values) for score in measured]
    freedom = sum(counts) - len(counts)
    squares = sum((n - 1) * score.spread**2 for n, score in zip(counts, measured, strict=True))
    pooled = math.sqrt(squares / max(1, freedom))
    spread = pooled if freedom >= 2 else max(pooled, widest)
    return STUDENT[min(max(freedom, 2), max(STUDENT))] * spread * math.sqrt(sum(1 / n for n in counts))
