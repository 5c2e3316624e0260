"""All claims together: how many held."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from feedback_transformer.experiments import EXPERIMENTS
from feedback_transformer.experiments.experiment import Claim
from feedback_transformer.experiments.speed import claim_verdicts
from feedback_transformer.report.experiments import ONE_SEED, ONLY_PAPER, VERDICTS, Outcome, kind_of


class Tally(NamedTuple):
    """The verdicts on a set of claims, and the experiments they come from."""

    verdicts: list[str]
    experiments: set[str]

    def counts(self) -> dict[str, int]:
        said = [kind_of(verdict) for verdict in self.verdicts]
        return {kind: said.count(kind) for kind in VERDICTS}

    def sentence(self, whose: str, scale: str = "laptop") -> str:
        where = "" if scale == "paper" else "at reduced scale "
        held, failed, undecided, not_run = self.counts().values()
        only_paper = sum(ONLY_PAPER in said for said in self.verdicts)
        single = sum(ONE_SEED in verdict for verdict in self.verdicts)
        parts = [
            count(held, "holds", "hold"),
            count(failed, "does not", "do not"),
            count(undecided, "is not decided", "are not decided"),
        ]
        if not_run > only_paper:
            parts.append(count(not_run - only_paper, "has not been run yet", "have not been run yet"))
        if only_paper:
            asked = "can be judged only at the paper's scale"
            parts.append(count(only_paper, asked, asked))
        return (
            f"Of {count(len(self.verdicts), 'claim', 'claims')} {whose} in "
            f"{count(len(self.experiments), 'experiment', 'experiments')}, {where}"
            f"{', '.join(parts[:-1])}, and {parts[-1]}; {single} of these verdicts "
            f"{'rests' if single == 1 else 'rest'} on one seed."
        )


def count(number: int, one: str, many: str) -> str:
    """The number with a word that agrees.

    >>> count(1, "holds", "hold"), count(0, "holds", "hold")
    ('1 holds', '0 hold')
    """
    return f"{number} {one if number == 1 else many}"


def tallies(outcomes: Sequence[Outcome], results: Path) -> dict[str, Tally]:
    """The paper's claims and our own, those about speed too, which have no runs at the paper's scale; a question that
    two experiments ask of the same runs counts once."""
    counted: set[Claim] = set()
    found = {whose: Tally([], set()) for whose in ("of the paper", "of our own")}
    for outcome in outcomes:
        for answer in outcome.claims():
            if (asked := answer.claim.asked()) in counted:
                continue
            counted.add(asked)
            own = found["of our own" if answer.ours else "of the paper"]
            own.verdicts.append(answer.verdict)
            own.experiments.add(outcome.experiment.name)
    for speed, verdict in claim_verdicts(results) if {outcome.scale for outcome in outcomes} != {"paper"} else []:
        own = found["of our own" if speed.ours else "of the paper"]
        own.verdicts.append(verdict)
        own.experiments.add("speed")
    return found


def verdict_count(results: Path) -> str:
    """One sentence on the claims of the paper, and one on our own."""
    outcomes = [Outcome(experiment, "laptop", results) for experiment in EXPERIMENTS.values()]
    return " ".join(tally.sentence(whose) for whose, tally in tallies(outcomes, results).items())
