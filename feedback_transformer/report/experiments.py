"""An experiment's records as a table and a list of claims with verdicts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from feedback_transformer.config import ConfigError
from feedback_transformer.experiments.experiment import (
    CLOSE,
    OURS,
    UNLEARNED,
    Claim,
    Experiment,
    Record,
    Score,
    Variant,
    verdict,
)
from feedback_transformer.report.tables import markdown_table

BESIDE = {"words_per_second": "words/s"}  # scores that have a column of their own
LOWER_IS_BETTER = ("bits", "perplexity")
VERDICTS = ("holds", "does not hold", "not decided", "not run")
ONE_SEED = "(one seed)"
ONLY_PAPER = "not run: only at the paper's scale"
BEST_ONLY = " with the best weights, not with the last"
PLURAL = {"holds": "hold", "does not hold": "do not hold"}
ROUGHLY = 1.3  # times as long: more than the noise of one machine
MEASURED = 10.0  # seconds of training, in whose cost rounding does not count
SPEED = "words_per_second"  # of decoding, which the paper draws beside a score where there is one


class Answer(NamedTuple):
    """A claim of the paper: its own numbers, ours, and whether it held."""

    words: str
    paper: str
    here: str
    verdict: str
    ours: bool
    claim: Claim


class Outcome:
    """What the records say about an experiment at a scale."""

    def __init__(self, experiment: Experiment, scale: str, results: Path) -> None:
        self.experiment, self.scale = experiment, scale
        self.variants = experiment.variants(scale)
        self.records: dict[str, list[Record]] = {v.key: v.records(results) for v in self.variants}
        self._refuse_other_data(results)
        self.own = metric_of(next((r[0] for r in self.records.values() if r), None))  # what the runs themselves rank by
        self.scores = experiment.scores or (self.own,)
        self.metric = self.scores[0]  # what ranks, and is drawn
        self._refuse_without_scores(results)

    def _refuse_other_data(self, results: Path) -> None:
        """A run on another corpus is not another seed. The vocabulary, which is made from the corpus, tells them apart;
        the oldest records have no fingerprint and pass."""
        seen: dict[str, str] = {}
        for key, records in self.records.items():
            for record in records:
                own = (record.get("fingerprints") or {}).get("vocabulary")
                if own and seen.setdefault(record["run"]["task_name"], own) != own:
                    raise ConfigError(
                        f"{results / key}-seed-{record['run']['seed']}.json was trained on other data than the rest "
                        f"of {self.experiment.name}; keep the two in separate folders (--results)"
                    )

    def _refuse_without_scores(self, results: Path) -> None:
        for key, records in self.records.items():
            for record in records:
                held = record["best" if self.experiment.development else "test"]
                if lost := [name for name in self.scores if name not in held]:
                    path = results / f"{key}-seed-{record['run']['seed']}.json"
                    raise ConfigError(f"{path} has no score {lost[0]!r}; fetch it again, or remove it")

    def score(self, key: str, name: str = "") -> Score | None:
        values = tuple(self.value(record, name or self.metric) for record in self.records.get(key, []))
        return Score(values) if values else None

    def ending(self, key: str) -> Score | None:
        """The score of the final weights; `score` uses those that were best on the validation set."""
        values = tuple(record["curve"][-1][self.metric] for record in self.records.get(key, []))
        return Score(values) if values else None

    @property
    def split(self) -> str:
        """The split that the scores are measured on."""
        return "dev" if self.experiment.development else "test"

    def value(self, record: Record, name: str) -> float:
        number: float = record["best" if self.experiment.development else "test"][name]
        return number

    @property
    def lower_is_better(self) -> bool:
        return self.metric in LOWER_IS_BETTER

    def cost_hours(self) -> float:
        """Core-hours of all runs together."""
        return sum(record["cpu_seconds"] for records in self.records.values() for record in records) / 3600

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """The header and one row per variant, then the published results of others."""
        elsewhere = self.experiment.elsewhere
        published = bool(elsewhere) or any(variant.paper is not None for variant in self.variants)
        reduced = ", reduced" if self.scale != "paper" else ""
        header = ["model", "parameters", self.unit(), "minutes", "seeds"]
        header += [f"{self.split} {name.replace('_', ' ')}{reduced}" for name in self.scores]
        header += ["last evaluation"] if self.experiment.endings else []
        header += self.beside().values()
        header += ["published" if elsewhere else "paper, full scale"] if published else []
        rows = [self._row(variant, published) for variant in self.variants]
        rest = ["-"] * (len(header) - 5 - len(self.scores))
        for name, level in self.bounds().items():
            levels = [f"{level:.3f}" if score == self.own else "-" for score in self.scores]
            rows.append([name, "-", "-", "-", "-", *levels, *rest])
        blank = ["-"] * (4 + len(self.scores) + self.experiment.endings + len(self.beside()))
        return header, rows + [[f"{e.label} ({e.source})", *blank, self._numbers(e.numbers.get)] for e in elsewhere]

    def unit(self) -> str:
        """What a training run counts: tokens, or the frames of an environment."""
        return next((r[0].get("unit", "tokens") for r in self.records.values() if r), "tokens")

    def bounds(self) -> dict[str, float]:
        """What the oracle, chance or frequent words get, averaged over the runs; nothing where their tasks differ, or
        where no column has the score."""
        tasks = {str(variant.run.task) for variant in self.variants}
        known = [r["bounds"] for records in self.records.values() for r in records if "bounds" in r]
        if not known or len(tasks) > 1 or self.own not in self.scores:
            return {}
        return {name: sum(each[name] for each in known) / len(known) for name in known[0]}

    def _row(self, variant: Variant, published: bool) -> list[str]:
        records, scores = self.records[variant.key], [self.score(variant.key, name) for name in self.scores]
        if not records:
            more = self.experiment.endings + len(self.beside())
            row = [variant.label, "-", "-", "-", "0", *("not run" for _ in scores), *["-"] * more]
        else:
            minutes = sum(record["cpu_seconds"] for record in records) / len(records) / 60
            row = [variant.label, f"{records[0]['parameters']:,}", f"{records[0]['tokens']:,}", f"{minutes:.1f}"]
            row += [str(len(records)), *(show(score) for score in scores if score)]
            if self.experiment.endings and (ending := self.ending(variant.key)):
                row.append(show(ending))
            for name in self.beside():
                mean = sum(record["test"][name] for record in records) / len(records)
                row.append(f"{mean:,.0f}" if mean >= 100 else f"{mean:.3g}")
        return row + ([self._numbers(variant.published)] if published else [])

    def _numbers(self, of: Callable[[str], float | None]) -> str:
        """The published numbers, one per score; where some are missing, those that there are come with their names."""
        known = {name: f"{number:g}" for name in self.scores if (number := of(name)) is not None}
        if len(known) == len(self.scores):
            return " / ".join(known.values())
        return ", ".join(f"{number} ({name.replace('_', ' ')})" for name, number in known.items()) or "-"

    def beside(self) -> dict[str, str]:
        """Further scores that all records have: name -> column title."""
        tests = [record["test"] for records in self.records.values() for record in records]
        hidden = () if self.experiment.one_machine else (SPEED,)
        others = {name: title for name, title in BESIDE.items() if name not in (*self.scores, *hidden)}
        return {name: title for name, title in others.items() if tests and all(name in test for test in tests)}

    def gap(self, better: str, worse: str, name: str) -> Score | None:
        """By how much one variant is better than another, seed by seed."""
        sign = -1 if self.lower_is_better else 1
        first, second = (
            {record["run"]["seed"]: self.value(record, name) for record in self.records.get(key, [])}
            for key in (better, worse)
        )
        values = tuple(sign * (first[seed] - second[seed]) for seed in first if seed in second)
        return Score(values) if values else None

    def claims(self) -> list[Answer]:
        """The claims that this scale has runs for, or only the paper's has, and whether they held."""
        keys, claims = {variant.key for variant in self.variants}, self.experiment.claims(self.scale)
        return [self._answer(claim) for claim in claims if claim.published or claim.compared() <= keys]

    def _answer(self, claim: Claim) -> Answer:
        name = claim.score or self.metric
        paper, ours = self._published(claim, name), claim.ours or not self.experiment.where
        better = self.score(claim.better, name)
        worse = self._elsewhere(claim, name) if claim.published else self.score(claim.worse, name)
        lower, widest = self.lower_is_better, self._widest(name)
        close, level = 0.0 if worse is None else self._close(claim, worse), None
        if claim.than is not None:
            pairs = ((claim.better, claim.worse), claim.than)
            ahead, there = (self._answer(replace(claim, better=a, worse=b, than=None)).verdict for a, b in pairs)
            better, worse, lower = self.gap(claim.better, claim.worse, name), self.gap(*claim.than, name), False
            widest, close = widest and math.sqrt(2) * widest, math.sqrt(2) * close
            scores = (self.score(key, name) for pair in pairs for key in pair)
            level = math.sqrt(2) * max((abs(score.mean) for score in scores if score), default=0.0)
        if better is None or worse is None or (claim.published and self.scale != "paper"):
            said = ONLY_PAPER if claim.published else "not run"
            return Answer(claim.words, paper, "", said, ours, claim)
        asked = claim if claim.than is None else replace(claim, chance=None)  # chance is of scores, not of leads
        said = verdict(asked, better, worse, lower, widest, close, level)
        if claim.than is not None:
            if unlearned := [one for one in (ahead, there) if one.startswith(UNLEARNED)]:
                said = unlearned[0]
            elif said.startswith("holds") and not ahead.startswith("holds"):
                said = ahead  # by more than there, but not ahead to begin with
        if self.scale == "smoke":
            said = "not decided: smoke runs learn nothing"
        elif not (claim.unequal or claim.published) and self._learned_from_more(claim):
            said = "not decided: trained on different amounts of data"
        if self.scale != "paper" and said.startswith("holds"):
            said = said.replace("holds", "holds reduced", 1)
        if said.startswith("holds") and self.experiment.endings:
            first, second = self.ending(claim.better), self.ending(claim.worse)
            if not (first and second and verdict(claim, first, second, lower, widest).startswith("holds")):
                said += BEST_ONLY
        return Answer(claim.words, paper, f"{show(better)} against {show(worse)}", said, ours, claim)

    def _elsewhere(self, claim: Claim, score: str) -> Score:
        """A published result of others."""
        row = next(row for row in self.experiment.elsewhere if row.label == claim.worse)
        return Score((row.numbers[score],), exact=True)

    def _close(self, claim: Claim, worse: Score) -> float:
        """The difference below which two scores count as equal, and single seeds cannot tell them apart."""
        if claim.equal and self.experiment.match:
            return self.experiment.match
        return max(CLOSE * abs(worse.mean), self.experiment.least)

    def _learned_from_more(self, claim: Claim) -> bool:
        """Whether one of the compared variants saw over a tenth more tokens than another, but for those that stop by
        themselves when they learn no more."""
        records = [record for key in claim.compared() for record in self.records[key]]
        tokens = [record["tokens"] for record in records if not record["run"]["train"].get("patience")]
        return bool(tokens) and max(tokens) > 1.1 * min(tokens)

    def _widest(self, name: str) -> float | None:
        """The largest spread between the seeds of any variant; None if none has several."""
        scores = [score for key in self.records if (score := self.score(key, name))]
        return max((score.spread for score in scores if len(score.values) > 1), default=None)

    def _published(self, claim: Claim, score: str) -> str:
        """The paper's numbers for the two variants; empty where it has none, or where gaps are compared."""
        full = self.experiment.variants("paper") if claim.published else []
        published = {variant.key: variant.published(score) for variant in (*full, *self.variants)}
        published |= {row.label: row.numbers.get(score) for row in self.experiment.elsewhere}
        numbers = [published.get(key) for key in (claim.better, claim.worse)]
        if claim.than is not None or claim.ours or not any(numbers):
            return ""
        return " against ".join("-" if number is None else f"{number:g}" for number in numbers)

    def claim_rows(self) -> tuple[list[str], list[list[str]]]:
        """The header and one row per claim, with the paper's numbers where it gives any."""
        answers = self.claims()
        words = [self.asked(answer) for answer in answers]
        ends = [[a.here or "-", a.verdict] for a in answers]
        if any(answer.paper for answer in answers):
            rows = [[said, a.paper or "-", *end] for said, a, end in zip(words, answers, ends, strict=True)]
            return ["claim", "paper, full scale", "here", "verdict"], rows
        return ["claim", "here", "verdict"], [[said, *end] for said, end in zip(words, ends, strict=True)]

    def asked(self, answer: Answer) -> str:
        """The claim in words, marked if it is not the paper's in an experiment of the paper's."""
        return f"{answer.words}{OURS if answer.ours and self.experiment.where else ''}"

    def overall(self) -> str:
        """One verdict if all claims agree, else how many there are of each."""
        verdicts = [answer.verdict for answer in self.claims()]
        if set(verdicts) == {ONLY_PAPER}:
            return ONLY_PAPER
        said = overall(verdicts, self.scale)
        return "nothing to compare with yet" if said == "not run" and any(self.records.values()) else said

    def note(self) -> str:
        """What was reduced, what it cost, and the command that reproduces it."""
        scale = "" if self.scale == "laptop" else f" --scale {self.scale}"
        command = f"`feedback-transformer reproduce {self.experiment.name}{scale}`"
        if prepare := self.experiment.prepare_command(self.scale):
            command = f"`{prepare}` and {command}"
        reduced = f"{reduction(self.experiment, self.scale)} " if self.scale != "paper" else ""
        if self.scale == "paper" and self.experiment.afterwards:
            reduced = f"{self.experiment.afterwards}. "
        published = self.experiment.elsewhere or any(variant.paper is not None for variant in self.variants)
        told = "" if published or not self.experiment.where else "The paper gives no numbers here. "
        if not any(self.records.values()):
            return f"{reduced}{told}Not run yet: {len(self.experiment.runs(self.scale))} runs, with {command}."
        cost = f"{self.cost_hours():.1f} core-hours in total; minutes are per run, on one core{self._processors()}."
        return f"{reduced}{told}{cost} Made with {command}."

    def _processors(self) -> str:
        """What the runs ran on, as far as the records tell. A name stands for faster and slower machines."""
        known = {r["environment"]["processor"] for own in self.records.values() for r in own}
        names = sorted(re.sub(r"\(\w+\)| Processor", "", name) for name in known)
        costs = ([r["cpu_seconds"] / r["tokens"] for r in own] for own in self.records.values() if long_enough(own))
        apart = max((max(own) / min(own) for own in costs), default=1.0)
        said = names if len(names) == 1 else [f"some {name}" for name in names]
        said += [f"one seed up to {apart:.1f} times as long as another"] if apart > ROUGHLY else []
        return f" ({', '.join(said)}{': times compare only roughly' if len(said) > 1 else ''})"

    def markdown(self) -> str:
        """Both tables, and the command that reproduces them."""
        known = any(self.records.values()) or self.experiment.elsewhere
        parts = [markdown_table(*self.rows())] if known else []
        return "\n\n".join([*parts, self.note(), markdown_table(*self.claim_rows())])


def overall(verdicts: list[str], scale: str = "laptop") -> str:
    """One verdict if all agree, else how many there are of each.

    >>> overall(["holds reduced", "not run", "holds reduced (one seed)"])
    '2 hold reduced, 1 not run; 1 of 2 on one seed'
    """
    said = [kind_of(verdict) for verdict in verdicts]
    kinds = [kind for kind in VERDICTS if kind in said]
    single, judged = sum(ONE_SEED in verdict for verdict in verdicts), sum(kind != "not run" for kind in said)
    seeds = "" if not single else "; one seed" if single == judged else f"; {single} of {judged} on one seed"
    lost = sum(BEST_ONLY in verdict for verdict in verdicts)
    seeds += f"; {lost} of {judged}{BEST_ONLY}" if lost else ""
    reduced = " reduced" if scale != "paper" else ""
    if len(kinds) == 1:
        return kinds[0] + (reduced if kinds == ["holds"] else "") + (seeds if kinds != ["not run"] else "")
    words = {kind: PLURAL.get(kind, kind) if said.count(kind) > 1 else kind for kind in kinds}
    counts = (f"{said.count(kind)} {words[kind]}{reduced if kind == 'holds' else ''}" for kind in kinds)
    return ", ".join(counts) + seeds if kinds else "no claim at this scale"


def metric_of(record: Record | None) -> str:
    """What chose the best weights of the run."""
    return "score" if record is None else next(name for name in record["best"] if name != "step")


def reduction(experiment: Experiment, scale: str) -> str:
    """What was made smaller, in words."""
    if scale == "smoke":
        return "Smoke test: it takes seconds and shows that everything runs; the models learn nothing."
    return f"Reduced: {experiment.reduced}."


def long_enough(records: list[Record]) -> bool:
    """Whether their costs, which are rounded to a tenth of a second, can be compared."""
    return bool(records) and all(record["cpu_seconds"] >= MEASURED for record in records)


def kind_of(said: str) -> str:
    """A verdict without what follows it.

    >>> kind_of("holds reduced (one seed)"), kind_of("not decided: within the noise")
    ('holds', 'not decided')
    """
    return next(kind for kind in VERDICTS if said.startswith(kind))


def show(score: Score, digits: int | None = None) -> str:
    """The mean and, for several seeds, their spread; four significant digits are enough.

    >>> show(Score((1.7195, 1.7245))), show(Score((185.322,)))
    ('1.722 ± 0.004', '185.3')
    """
    if digits is None:
        digits = 3 if abs(score.mean) < 10 else 1
    spread = f" ± {score.spread:.{digits}f}" if len(score.values) > 1 else ""
    return f"{score.mean:.{digits}f}{spread}"
