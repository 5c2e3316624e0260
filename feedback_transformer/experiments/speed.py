"""Table 5: training and inference speed, Feedback relative to the Transformer, and memory; nothing is trained for it.

Our numbers come from the records of `bench`, where both take turns in one run. The paper measures on GPUs and we on
one CPU core: ratios can be compared, speeds cannot. Our model of words is the paper's smaller one. That of translation
has half of its width, and a quarter of its feed-forward's width and heads. The paper also says that its larger model of
words took 3.5 days to train, and the Transformer 1.2. Memory is what a training step of the core adds to a process; at
inference Feedback keeps one memory a step instead of one for each layer, whatever the depth, which needs no measuring.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from feedback_transformer.config import ConfigError
from feedback_transformer.experiments.experiment import OURS
from feedback_transformer.training.record import read_record

NOISE = 0.2  # of a ratio: by how much it varies from one measurement, or one machine, to the next
QUIET = 0.05  # the same for a ratio of Feedback to itself
Row = Mapping[str, object]
Record = dict[str, Any]
Pair = tuple[float, float]  # of the two that are compared


class Speed(NamedTuple):
    """A row: a claim that one is so many times as fast as the other, and where to find ours in a benchmark record."""

    task: str
    claim: str
    claimed: float  # the ratio that it claims, at least
    paper: Pair  # words (or frames) per second
    option: str  # of `bench`
    part: str  # of its record
    shape: str  # of ours
    wanted: Row = MappingProxyType({})  # values that select the rows of that part
    compared: tuple[Row, Row] = ({"contender": "feedback"}, {"contender": "transformer"})  # and among these, the two
    rate: str = "tokens_per_second"
    ours: bool = False  # our own question, not a claim of the paper
    noise: float = NOISE

    def here(self, record: Record | None) -> Pair | None:
        """Our two speeds, or None if not measured."""
        rows = (record or {}).get(self.part, [])
        wanted = [{**self.wanted, **one} for one in self.compared]
        found = [float(row[self.rate]) for one in wanted for row in rows if one.items() <= row.items()]
        return (found[0], found[1]) if len(found) == 2 else None

    def verdict(self, record: Record | None) -> str:
        """Reduced also where the model is the paper's: one CPU core and few rows, instead of GPUs and many."""
        found = self.here(record)
        if found is None or record is None:
            return NOT_RUN
        if record.get("quick"):
            return "not decided: tiny models"
        ratio = found[0] / found[1] / self.claimed
        if abs(ratio - 1) < self.noise:
            return "not decided: within the noise"
        return "holds reduced" if ratio > 1 else "does not hold"

    def words(self) -> str:
        return f"{self.claim}{OURS if self.ours else ''}"


# Words per second in training and at inference.
PAPER = {
    "language": {"feedback": (84_400, 2_176), "transformer": (296_000, 592)},
    "translation": {"feedback": (126_000, 5_410), "transformer": (280_000, 3_190)},
}


def paper(task: str, place: int) -> Pair:
    return PAPER[task]["feedback"][place], PAPER[task]["transformer"][place]


FRAMES = (22_300, 22_300)  # per second, of both models, in maze navigation
SHALLOW = 4.2  # times as fast with 1 decoder layer as with 6 (Section 4.2.1)

# The benchmarks that the table is made from, by the option of `bench`.
ENGINES = ""
RECORDS = {
    ENGINES: "bench.json",
    "--language": "speed-wikitext-103-small.json",
    "--translation": "speed-translation.json",
    "--worlds": "bench-worlds.json",
}
SHAPE = "WikiText-103 small, whole model"
ENCODER, LAYERS = "width 512, 6 encoder layers", "width 512, 6 encoder and 2 decoder layers"
DECODER = "width 512, 2 decoder layers"
WORLD = "paper's model, 64 copies"
SHARED = 3.0  # times as fast as without sharing: "almost 3X" (Section 4.3.4)
AS_FAST = 1.0  # as the Transformer, or more
DECODES = "Feedback decodes faster"
TRAINS = "training Feedback is no slower"
DEPTHS = ({"contender": "feedback", "decoder_layers": 1}, {"contender": "feedback", "decoder_layers": 6})
SHALLOWER = f"1 decoder layer decodes {SHALLOW:g} times as fast as 6"
NOT_RUN = "not run"
DIFFERS = "not decided: it depends on the shape"
SHARES = "sharing keys and values makes decoding almost 3 times as fast"
SHARING = ({"contender": "feedback"}, {"contender": "feedback, keys and values per layer"})
DEEP_ENCODER = "an encoder of 12 layers instead of 6 hardly slows decoding"
DEEPER = ({"contender": "feedback", "encoder_layers": 12}, {"contender": "feedback", "encoder_layers": 6})
HARDLY = 0.9  # "negligible" in the paper (Section 4.2.1), which gives no number
LIGHT = "training takes half the memory"
HALF = 2.0  # times the memory for the Transformer: "the overall model is 2x smaller" (Section 1)
LIGHTER = ({"contender": "transformer"}, {"contender": "native"})
CORE, LM, MT, RL = "the core", "language modelling", "translation", "reinforcement learning"


def by_batch(
    task: str, claim: str, claimed: float, numbers: Pair, part: str, shape: str, batches: tuple[int, ...], **rest: Any
) -> list[Speed]:
    """The same claim, measured with several batches."""
    option = {LM: "--language", MT: "--translation"}[task]
    return [
        Speed(task, claim, claimed, numbers, option, part, f"{shape}, B {batch}", {"batch": batch}, **rest)
        for batch in batches
    ]


SPEEDS = (
    *(
        Speed(CORE, LIGHT, HALF, (HALF, 1.0), ENGINES, "memory", shape, {"shape": shape}, LIGHTER, "megabytes")
        for shape in ("d256 L4 S100 B64", "d256 L4 S512 B32")
    ),
    *by_batch(LM, TRAINS, AS_FAST, paper("language", 0), "training", SHAPE, (8, 32), ours=True),
    *by_batch(LM, DECODES, AS_FAST, paper("language", 1), "generation", SHAPE, (1, 32)),
    *by_batch(LM, SHARES, SHARED, (SHARED, 1.0), "generation", SHAPE, (1, 32), compared=SHARING, noise=QUIET),
    *by_batch(MT, TRAINS, AS_FAST, paper("translation", 0), "training", LAYERS, (32, 128), ours=True),
    *by_batch(MT, DECODES, AS_FAST, paper("translation", 1), "generation", f"{LAYERS}, beam 5", (1, 32)),
    *by_batch(
        MT, SHALLOWER, SHALLOW, (SHALLOW, 1.0), "depth", f"{ENCODER}, beam 5", (1, 32), compared=DEPTHS, noise=QUIET
    ),
    *by_batch(
        MT, DEEP_ENCODER, HARDLY, (1.0, 1.0), "encoder", f"{DECODER}, beam 5", (1, 32), compared=DEEPER, noise=QUIET
    ),
    Speed(RL, TRAINS, AS_FAST, FRAMES, "--worlds", "learning", WORLD, {"shape": WORLD}, rate="frames_per_second"),
)


def bench_records(results: Path) -> dict[str, Record]:
    """The records of the benchmarks that have one, by the option of `bench`."""
    records = {option: read_record(path) for option, name in RECORDS.items() if (path := results / name).exists()}
    for option, record in records.items():
        if "date" not in record.get("machine", ()):
            path = results / RECORDS[option]
            raise ConfigError(f"{path} is not the record of a benchmark; make it with `{command(option)}`")
    return records


def command(option: str) -> str:
    return f"feedback-transformer bench {option}".rstrip()


def claim_verdicts(results: Path, option: str | None = None) -> list[tuple[Speed, str]]:
    """Each claim once, also where it was measured with several shapes; of one benchmark, or of all."""
    found: dict[tuple[str, str], tuple[Speed, set[str]]] = {}
    records = bench_records(results)
    for speed in SPEEDS:
        if option in (None, speed.option):
            verdict = speed.verdict(records.get(speed.option))
            found.setdefault((speed.task, speed.claim), (speed, set()))[1].add(verdict)
    judged = ((speed, said - {NOT_RUN} or said) for speed, said in found.values())
    return [(speed, said.pop() if len(said) == 1 else DIFFERS) for speed, said in judged]


def speed_rows(results: Path) -> tuple[list[str], list[list[str]]]:
    """The header and one row per speed: the ratios, and what was measured."""
    header = ["claim", "shape", "paper", "here", "verdict", "command", "measured"]
    rows, records = [], bench_records(results)
    for speed in SPEEDS:
        record = records.get(speed.option)
        date = "-" if record is None else str(record["machine"]["date"])[:10]
        words, *numbers = speed_claim(speed, record)
        rows.append([f"{speed.task}: {words}", speed.shape, *numbers, f"`{command(speed.option)}`", date])
    return header, rows


def speed_claim(speed: Speed, record: Record | None) -> list[str]:
    """The claim, the paper's ratio, ours and the verdict."""
    found = speed.here(record)
    here = "-" if found is None else f"{found[0] / found[1]:.2f}x"
    return [speed.words(), f"{speed.paper[0] / speed.paper[1]:.2f}x", here, speed.verdict(record)]
