"""The supervised loop, the same for every task, to be read from top to bottom.

A run has a folder:

    config.json          its configuration
    last.safetensors     its current state: model, optimizer, memory, data position, random numbers
    best.safetensors     the same at the best evaluation so far
    record.json          what was run and the results
    tensorboard/         curves, if TensorBoard is installed

A run that was stopped by Ctrl-C, `kill -9` or a power failure continues from last.safetensors, and its results are
bit-for-bit those of a run that was never stopped.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from feedback_transformer.config import ConfigError
from feedback_transformer.data.episodes import NO_LABEL
from feedback_transformer.environments.world import Environment
from feedback_transformer.tasks.pair_task import PairTask
from feedback_transformer.training import checkpoint
from feedback_transformer.training.averaging import keep_weights
from feedback_transformer.training.learner import make_learner
from feedback_transformer.training.loading import check_same_run, describe, load_model, make_model
from feedback_transformer.training.optimizer import bptt_at, make_optimizer, rate_at
from feedback_transformer.training.parallel import Team
from feedback_transformer.training.progress import Progress, Reporter, Update
from feedback_transformer.training.record import bounds_of, command_line, environment, open_tensorboard, signature_of
from feedback_transformer.training.run import RunConfig
from feedback_transformer.training.stopping import DivergedError, StoppedError, stop_request
from feedback_transformer.training.stream import TrainingStream
from feedback_transformer.training.tiny import tiny_is_zero

REPORT_SECONDS = 0.2  # between two progress reports


def train(
    run: RunConfig,
    folder: Path,
    report: Reporter = lambda update: None,
    resume: bool = False,
    device: str = "cpu",
    command: str | None = None,
) -> dict[str, Any]:
    """Train until the steps are done or patience runs out; returns the record, which is also in the folder."""
    trainer = trainer_of(run)(run, folder, torch.device(device), command)
    trainer.begin(resume)
    with trainer.lock or nullcontext(), trainer.board or nullcontext(), tiny_is_zero(), stop_request() as stopping:
        while not trainer.done:
            trainer.update()
            if trainer.progress.step % run.train.eval_every == 0 or trainer.done:
                trainer.evaluate()
            trainer.report(report)
            if trainer.save_now_and_then(stopping.is_set()):
                trainer.team.leave()
                raise StoppedError(f"stopped at step {trainer.progress.step}; everything is in {folder}")
        record = trainer.finish()
        trainer.team.leave()
        return record


def trainer_of(run: RunConfig) -> type[Trainer]:
    """A2C for an environment, the supervised loop for everything else."""
    if isinstance(run.task, Environment):
        from feedback_transformer.training.a2c import ActorCritic  # needs gymnasium, slow to import

        return ActorCritic
    return Trainer


class Trainer:
    """A run in progress."""

    measure, unit = "accuracy", "tokens"  # what is counted on the way

    def __init__(self, run: RunConfig, folder: Path, device: torch.device, command: str | None = None) -> None:
        self.run, self.folder, self.device = run, folder, device
        self.team = Team.join(device, 0 if isinstance(run.task, PairTask) else run.train.batch_size)
        torch.manual_seed(run.seed)
        self.model = make_model(run).to(device)
        # LayerDrop leaves out layers, and what a block of one step remembers is read by none of its steps.
        some_unused = run.model.layer_drop > 0 or 1 in (run.train.bptt, run.train.bptt_start)
        self.learner = self.team.wrap(make_learner(self.model, run), some_unused)
        if not self.team.leads:
            torch.manual_seed(run.seed + 1_000_003 * self.team.rank)  # dropout masks of its own
        self.optimizer = make_optimizer(self.model, run.train)
        self.stream: Any = self.make_stream()
        self.fingerprints = run.task.fingerprints()
        self.memories: list[Any] = [None] * run.train.accumulate  # one per part of the batch
        self.progress = Progress(command=command or command_line())  # recorded, so that it can be repeated
        if run.model.cutoffs:  # an adaptive softmax is never computed as a whole
            self.measure = ""
        self.losses: list[float] = []  # since the last evaluation
        self.scores: dict[str, float] = {}
        self.validation = run.task.evaluation("validation", run.train.validation_episodes, run.seed)
        run.task.evaluation("test", 1, run.seed)  # if there is nothing to test on, say so before the training
        self.board: Any = None
        self.lock: Any = None
        self.environment = environment(device)  # of the code that runs, whatever is checked out meanwhile
        self.clock, self.cpu_clock = time.monotonic(), time.process_time()
        self.saved = self.reported = self.clock

    def make_stream(self) -> Any:
        """The source of the training data."""
        return TrainingStream(self.run)

    # ---------------------------------------------------------------- begin, save, resume, end

    def begin(self, resume: bool) -> None:
        """Start in a new folder, or resume the run in it."""
        last = self.folder / "last.safetensors"
        if last.exists() and not resume:
            raise ConfigError(f"{self.folder} already holds a run; continue it with --resume, or choose another --out")
        if self.team.leads:
            self.lock = checkpoint.lock_folder(self.folder)
        if last.exists():
            self.restore(last)
        if self.environment["commit"] not in self.progress.commits:
            self.progress.commits.append(self.environment["commit"])
        if self.team.leads:
            checkpoint.write_json(self.folder / "config.json", describe(self.run, self.folder, self.progress.command))
            self.board = open_tensorboard(self.folder / "tensorboard", self.progress.step)
        self.evaluated = self.speed_from = (time.monotonic(), self.progress.tokens)

    def save(self, name: str) -> None:
        """Write everything the run needs to continue from here."""
        self._read_clocks()
        self._refuse_nonsense(*(float(parameter.detach().sum()) for parameter in self.model.parameters()))
        own = self._memory_tensors() | checkpoint.with_prefix("random", checkpoint.random_tensors(self.device))
        gathered = self.team.gather(own)
        self.saved = time.monotonic()
        if not self.team.leads:
            return
        tensors = {
            **checkpoint.with_prefix("model", self.model.state_dict()),
            **checkpoint.with_prefix("optimizer", checkpoint.optimizer_tensors(self.optimizer)),
            **checkpoint.with_prefix("process", gathered),
        }
        meta = {
            "run": self.run.to_dict(),
            "fingerprints": self.fingerprints,
            "processes": self.team.size,
            "stream": self.stream.position(),
            "progress": asdict(self.progress),
            "losses": self.losses,
            "scores": self.scores,
        }
        checkpoint.save(self.folder / f"{name}.safetensors", tensors, meta)

    def _memory_tensors(self) -> dict[str, Tensor]:
        kept = [(part, memory) for part, memory in enumerate(self.memories) if memory is not None]
        return {f"memory.{part}.{name}": t for part, memory in kept for name, t in memory.tensors().items()}

    def _load_memory(self, own: dict[str, Tensor]) -> None:
        for part in range(self.run.train.accumulate):
            if memory := checkpoint.without_prefix(f"memory.{part}", own):
                self.memories[part] = self.model.state_from_tensors(memory).to(self.device)

    def restore(self, path: Path) -> None:
        """Restore the exact state in which the checkpoint was written."""
        tensors, meta = checkpoint.load_whole(path)
        check_same_run(self.run, meta, path)
        if meta["processes"] != self.team.size:
            raise ConfigError(f"{path} is of a run on {meta['processes']} processes, not {self.team.size}; use as many")
        load_model(self.model, tensors, path)
        checkpoint.load_optimizer(self.optimizer, checkpoint.without_prefix("optimizer", tensors))
        self.stream.seek(meta["stream"])
        own = checkpoint.without_prefix(f"process.{self.team.rank}", tensors)
        self._load_memory(own)
        older = {"command": self.progress.command, "running_updates": meta["progress"]["step"]}  # they have none
        self.progress = Progress(**{**older, **meta["progress"]})
        self.losses, self.scores = list(meta["losses"]), dict(meta["scores"])
        best = path.with_name("best.safetensors")
        if best.exists() and checkpoint.load_whole(best)[1]["progress"]["step"] > self.progress.step:
            self.progress.best = (
                None  # killed between the two: the best before it is gone, so this one will be written again
            )
        checkpoint.load_random(checkpoint.without_prefix("random", own), self.device)

    def save_now_and_then(self, stopping: bool) -> bool:
        """Save when it is due, or when any process is asked to stop; returns whether one is."""
        due = self.team.leads and time.monotonic() - self.saved >= self.run.train.checkpoint_seconds
        stops, saves = self.team.total(self.device, stopping, due or stopping)
        if saves:
            self.save("last")
        return stops > 0

    def finish(self) -> dict[str, Any]:
        """Score the best weights on the test set, once."""
        tensors, meta = checkpoint.load_whole(self.folder / "best.safetensors")
        if (step := meta["progress"]["step"]) != (best := self.progress.best_step):
            raise ConfigError(f"best.safetensors in {self.folder} is of step {step}, not of {best}; train it again")
        load_model(self.model, tensors, self.folder / "best.safetensors")
        test = self.score(self.run.task.evaluation("test", self.run.train.test_episodes, self.run.seed))
        self._read_clocks()
        return self.write_record(test)

    @property
    def main_steps(self) -> int:
        """The updates before fine-tuning: as many as configured, or until patience ran out."""
        ended = self.progress.main_steps
        return self.run.train.steps if ended is None else ended

    @property
    def total_steps(self) -> int:
        return self.main_steps + self.run.train.finetune_steps

    @property
    def done(self) -> bool:
        return self.progress.step >= self.total_steps

    # ---------------------------------------------------------------- one update

    def update(self) -> None:
        """One block: forward, backward, clip, Adam. The memory is carried to the next block without gradients."""
        *rows, begins = self.stream.next_block(bptt_at(self.progress.step, self.run.train))
        self.optimizer.zero_grad(set_to_none=True)
        loss, right, asked = self._forward_backward(rows, begins)
        self._descend(loss)
        self._count(rows[-1].numel(), loss, right / asked if asked else None)

    def _descend(self, loss: float) -> None:
        """Clip the gradients and take a step of the optimizer."""
        train, step = self.run.train, self.progress.step
        norm = clip_grad_norm_(self.model.parameters(), train.gradient_clip or math.inf)
        self._refuse_nonsense(loss, norm.item())
        for group in self.optimizer.param_groups:
            group["lr"] = rate_at(step, train, self.main_steps)
        self.optimizer.step()
        for span in self.model.spans():
            span.clamp_()

    def _count(self, tokens: int, loss: float, accuracy: float | None) -> None:
        """Count an update; `accuracy` is None if no position had a label."""
        self.progress.step += 1
        self.progress.tokens += tokens
        self.losses.append(loss)
        if accuracy is not None:
            self.progress.see(accuracy)
        self._advance_curriculum()

    def _forward_backward(self, rows: list[Tensor], begins: bool) -> tuple[float, int, int]:
        """Compute gradients of the mean loss over all labels; returns the loss, and how many were right and asked."""
        team, labels, total, right = self.team, rows[-1], 0.0, 0
        asked = int((labels != NO_LABEL).sum())
        parts = max(1, min(self.run.train.accumulate, len(labels) // team.size))  # a batch of long pairs has few rows
        own = [[part.to(self.device) for part in team.share(some, parts)] for some in rows]
        for part, some in enumerate(zip(*own, strict=True)):
            memory = None if begins else self.memories[part]
            last = part == parts - 1 or team.size == 1
            with nullcontext() if last else self.learner.no_sync():  # type: ignore[operator]
                loss, penalty, good, self.memories[part] = self.learner(*some, memory)
                loss = loss / max(1, asked)
                total, right = total + loss.item(), right + good
                (loss * team.size + penalty / parts).backward()
        sums = team.total(self.device, total, right)
        return sums[0], int(sums[1]), asked

    def _refuse_nonsense(self, *numbers: float) -> None:
        """Raise an error if the loss, the gradient or a weight is not finite, so that it is never saved."""
        if all(map(math.isfinite, numbers)):
            return
        there = (self.folder / "last.safetensors").exists()
        kept = "The last good checkpoint is kept" if there else "Nothing was saved"
        raise DivergedError(
            f"the loss, its gradient or a weight is no longer a finite number at step {self.progress.step + 1}. "
            f"{kept} in {self.folder}; try a smaller learning_rate or gradient_clip"
        )

    def _advance_curriculum(self) -> None:
        """Move on when the gate is passed or this stage's share of the steps is used up."""
        train, stream = self.run.train, self.stream
        if stream.last_stage:
            return
        passed = self.progress.running_accuracy >= stream.stages[stream.stage].gate
        deadline = train.curriculum_deadline * train.steps * (stream.stage + 1) / (len(stream.stages) - 1)
        if passed or self.progress.step >= deadline:
            stream.advance_stage()
            self.progress.running_accuracy, self.progress.running_updates = 0.0, 0

    # ---------------------------------------------------------------- looking at it

    def evaluate(self) -> None:
        """Score on the validation set, add a point to the curve, write checkpoints and the record."""
        self.scores = self.score(self.validation)
        self.model.train()
        progress, value = self.progress, self.scores[self.run.task.metric]
        sign = -1 if self.run.task.lower_is_better else 1
        better = progress.best is None or sign * value > sign * progress.best
        progress.evaluations_since_best = 0 if better else progress.evaluations_since_best + 1
        if better:
            progress.best, progress.best_step = value, progress.step
        if 0 < self.run.train.patience <= progress.evaluations_since_best and progress.step < self.main_steps:
            progress.main_steps = progress.step
        self._read_clocks()
        point = {
            "step": progress.step,
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 2),
            "loss": sum(self.losses) / max(1, len(self.losses)),
            **({"running_accuracy": progress.accuracy} if self.measure else {}),
            "stage": self.stream.stage,
            "rate": rate_at(progress.step - 1, self.run.train, self.main_steps),
            **self.curve_extras(),
            **self.scores,
        }
        progress.curve.append(point)
        self.speed_from, self.evaluated = self.evaluated, (time.monotonic(), progress.tokens)  # stages differ in speed
        self.losses = []
        for name, number in point.items() if self.board is not None else ():
            self.board.add_scalar(name, number, progress.step)
        if better:
            self.save("best")
        if (count := self.run.train.keep_checkpoints) and self.team.leads:
            keep_weights(self.folder, progress.step, self.model, self.run.to_dict(), self.fingerprints, count)
        self.save("last")  # after the others: a run killed in between repeats this evaluation
        self.write_record()

    def score(self, data: Any) -> dict[str, float]:
        """The leading process's scores, so that all processes make the same decisions."""
        return self.team.told(score(self.model, self.run, data, self.device) if self.team.leads else {})

    def curve_extras(self) -> dict[str, float]:
        """Further values for a point of the curve."""
        return {}

    def report(self, reporter: Reporter) -> None:
        """Report progress, at most every REPORT_SECONDS."""
        now, progress = time.monotonic(), self.progress
        if now - self.reported < REPORT_SECONDS and not self.done:
            return
        self.reported = now
        since, tokens = self.speed_from
        speed = (progress.tokens - tokens) / max(1e-9, now - since)
        left = (self.total_steps - progress.step) * progress.tokens / max(1e-9, progress.step * speed)
        reporter(
            Update(
                step=progress.step,
                total_steps=self.total_steps,
                tokens=progress.tokens,
                loss=sum(self.losses[-20:]) / len(self.losses[-20:]) if self.losses else progress.curve[-1]["loss"],
                accuracy=progress.accuracy,
                stage=self.stream.stage,
                num_stages=len(self.stream.stages),
                tokens_per_second=speed,
                seconds_left=left,
                validation=self.scores,
                measure=self.measure,
                unit=self.unit,
            )
        )

    def record(self, test: dict[str, float] | None) -> dict[str, Any]:
        return {
            "run": self.run.without_places().to_dict(),
            "fingerprints": self.fingerprints,
            "command": self.progress.command,
            "environment": {**self.environment, "commit": ", ".join(filter(None, self.progress.commits)) or None},
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "finished": test is not None,
            "steps": self.progress.step,
            "tokens": self.progress.tokens,
            "wall_seconds": round(self.progress.seconds, 1),
            "cpu_seconds": round(self.progress.cpu_seconds, 1),
            "best": {"step": self.progress.best_step, self.run.task.metric: self.progress.best},
            "test": test,
            **signature_of(self.run.task),
            **(bounds_of(self.run.task) if test is not None else {}),
            "curve": self.progress.curve,
        }

    def write_record(self, test: dict[str, float] | None = None) -> dict[str, Any]:
        record = self.record(test)
        if self.team.leads:
            checkpoint.write_json(self.folder / "record.json", record)
        return record

    def _read_clocks(self) -> None:
        now, cpu = time.monotonic(), time.process_time()
        self.progress.seconds += now - self.clock
        self.progress.cpu_seconds += cpu - self.cpu_clock
        self.clock, self.cpu_clock = now, cpu


@torch.no_grad()
def score(model: nn.Module, run: RunConfig, data: Any, device: torch.device) -> dict[str, float]:
    """The task's scores of a model in evaluation mode."""
    model.eval()
    return run.task.score(model, data, device)
