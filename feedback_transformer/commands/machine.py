"""Options that commands share: the seed, the device and the threads."""

from __future__ import annotations

import argparse

import torch

from feedback_transformer.config import ConfigError


def add_machine_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--seed", type=seed_number, help="seed of the random numbers (0)")
    sub.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, mps (cpu)")
    sub.add_argument("--threads", type=positive_number, help="CPU threads (PyTorch's default)")


def seed_number(text: str) -> int:
    """An argument that is a seed."""
    if not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 2^63 - 1")
    return int(text)


def positive_number(text: str) -> int:
    """An argument that is a count of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def check_device(name: str) -> str:
    """The device, if it is available."""
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, ValueError):
        raise ConfigError(f"device {name!r} is not available here; choose another --device, for example cpu") from None
    return name
