"""`feedback-transformer watch`: an episode as a film or in the terminal."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from feedback_transformer.commands.command import Command
from feedback_transformer.commands.machine import positive_number, seed_number
from feedback_transformer.config import ConfigError, parse_assignments
from feedback_transformer.environments.play import PolicyActor
from feedback_transformer.environments.world import Environment
from feedback_transformer.training.loading import load_run

HELP = """\
examples:
  feedback-transformer watch runs/corridor-feedback-laptop-0
  feedback-transformer watch runs/maze-feedback-laptop-0 --out maze.mp4 --seed 3
  feedback-transformer watch runs/maze-feedback-laptop-0 --ansi --speed 20
  feedback-transformer watch runs/maze-feedback-laptop-0 --oracle size=13

A folder stands for its best checkpoint. Fields of the task can be set with field=value. An MP4 needs the program
ffmpeg; a GIF needs nothing more.
"""


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("checkpoint", type=Path, help="a checkpoint, or the folder of a run")
    sub.add_argument("overrides", nargs="*", default=[], metavar="field=value", help="set a field of the task")
    sub.add_argument("--out", type=Path, default=Path("episode.gif"), help="a .gif or .mp4 (episode.gif)")
    sub.add_argument("--ansi", action="store_true", help="show it in the terminal instead")
    sub.add_argument(
        "--oracle", action="store_true", help="show the oracle, which knows the whole world, instead of the policy"
    )
    sub.add_argument("--seed", type=seed_number, default=0, help="seed of the episode and the actions (0)")
    sub.add_argument("--speed", type=float, default=8.0, help="steps per second (8)")
    sub.add_argument("--steps", type=positive_number, default=0, help="largest number of steps (the whole episode)")


def run(options: argparse.Namespace) -> int:
    """Play one episode and show it."""
    if not 0.01 <= options.speed <= 1000:
        raise ConfigError(f"--speed = {options.speed} must be from 0.01 to 1000 steps per second")
    if not options.ansi and options.out.suffix not in (".gif", ".mp4"):
        raise ConfigError(f"--out = {options.out} must end in .gif or .mp4")
    run_, policy = load_run(options.checkpoint)
    changed = run_.with_task(parse_assignments(options.overrides))
    task = changed.task
    if not isinstance(task, Environment) or not isinstance(run_.task, Environment):
        raise ConfigError(
            f"{options.checkpoint} was trained on {run_.task_name}, which is not a world to act in; choose a model of "
            "a corridor or maze"
        )
    if task.observation_sizes != run_.task.observation_sizes or task.actions != run_.task.actions:
        raise ConfigError(
            f"{options.checkpoint} has other observations or actions than this task; do not set fields that change them"
        )
    film = Film(task, None if options.oracle else policy, options)
    if options.ansi:
        return show_in_terminal(film, options.speed)
    frames = list(film.frames("rgb_array"))
    write_film(options.out, frames, options.speed)
    print(f"{options.out}: {film.told()}")
    return 0


class Film:
    """One episode of one copy, frame by frame."""

    def __init__(self, task: Environment, policy: Any, options: argparse.Namespace) -> None:
        self.task, self.policy, self.seed, self.limit = task, policy, options.seed, options.steps
        self.reward, self.steps = 0.0, 0

    def frames(self, mode: str) -> Iterator[Any]:
        from feedback_transformer.environments.gym import SingleEnv  # gymnasium is slow to import

        env = SingleEnv(self.task, render_mode=mode)
        actor = PolicyActor(self.policy, torch.device("cpu"), torch.Generator().manual_seed(self.seed))
        seen, _ = env.reset(seed=self.seed)
        yield env.render()
        ended = False
        while not ended and not 0 < self.limit <= self.steps:
            action = env.world.oracle() if self.policy is None else actor(env.world, seen[None])
            seen, reward, terminated, truncated, _ = env.step(action[0])
            self.reward, self.steps, ended = self.reward + reward, self.steps + 1, terminated or truncated
            yield env.render()

    def told(self) -> str:
        return f"{self.steps} steps, reward {self.reward:g}"


def show_in_terminal(film: Film, speed: float) -> int:
    """Each frame over the last one; if the output is not a terminal, one after the other."""
    live = sys.stdout.isatty()
    for number, text in enumerate(film.frames("ansi")):
        if live and number:
            print(f"\033[{text.count(chr(10)) + 1}A", end="")
        print("\n".join(f"{line}\033[K" for line in text.split("\n")) if live else text + "\n", flush=True)
        if live:
            time.sleep(1 / speed)
    print(film.told())
    return 0


def write_film(path: Path, frames: list[NDArray[np.uint8]], speed: float) -> None:
    """A GIF by Pillow, an MP4 by ffmpeg."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".gif":
            from PIL import Image

            first, *others = [Image.fromarray(frame) for frame in frames]
            first.save(path, save_all=True, append_images=others, duration=round(1000 / speed), loop=0)
        else:
            _write_mp4(path, frames, speed)
    except OSError as error:
        raise ConfigError(f"cannot write {path} ({error.strerror or error}); choose another --out") from None


def _write_mp4(path: Path, frames: list[NDArray[np.uint8]], speed: float) -> None:
    if shutil.which("ffmpeg") is None:
        raise ConfigError(f"{path} needs the program ffmpeg, which is not installed; choose a .gif")
    height, width, _ = frames[0].shape
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{speed:g}", "-i", "-"]
    command = ["ffmpeg", "-y", "-loglevel", "error", *raw, "-pix_fmt", "yuv420p", str(path)]
    made = subprocess.run(command, input=b"".join(map(bytes, frames)), capture_output=True, check=False)
    if made.returncode:
        raise ConfigError(f"ffmpeg could not write {path}: {made.stderr.decode(errors='replace').strip()}")


COMMANDS = (
    Command("watch", "show an episode of a trained policy, as a film or in the terminal", HELP, add_arguments, run),
)
