"""A2C: returns by hand, memory that begins anew in the middle of a block, resumed to the bit, and it learns."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from feedback_transformer.cli import main
from feedback_transformer.config import ActConfig, ConfigError, ModelConfig
from feedback_transformer.environments.play import play
from feedback_transformer.environments.world import Trial
from feedback_transformer.experiments import EXPERIMENTS
from feedback_transformer.model.policy import Policy
from feedback_transformer.presets import preset
from feedback_transformer.training.a2c import ActorCritic, Actors, Block, advantages
from feedback_transformer.training.run import RunConfig
from feedback_transformer.training.stopping import StoppedError
from feedback_transformer.training.supervised import train
from tests.training.runs import comparable

CPU = torch.device("cpu")
CORES = ["feedback", "transformer", "lstm"]
WORLDS = ["corridor", "maze", "maze-easy", "water-maze"]


def small_run(core: str = "feedback", world: str = "corridor", **overrides: Any) -> RunConfig:
    return preset(world, "smoke", core).override({name: str(value) for name, value in overrides.items()})


# ------------------------------------------------------------------------------------------------ the algorithm


def returns(rewards: torch.Tensor, ended: torch.Tensor, bootstrap: torch.Tensor, discount: float) -> torch.Tensor:
    """What is yet to come: advantages over values of nothing."""
    return advantages(rewards, ended, torch.zeros_like(rewards), bootstrap, discount, trace=1.0)


def test_returns_agree_with_a_hand_computation() -> None:
    rewards = torch.tensor([[0.0, 1.0, 0.0, 2.0], [1.0, 0.0, 0.0, 0.0]])
    ended = torch.tensor([[False, True, False, False], [False, False, False, True]])
    bootstrap = torch.tensor([10.0, 10.0])
    expected = [[0.9, 1.0, 0.9 * (2 + 9), 2 + 9], [1.0, 0.0, 0.0, 0.0]]
    torch.testing.assert_close(returns(rewards, ended, bootstrap, 0.9), torch.tensor(expected))


@pytest.mark.parametrize("trace", [1.0, 0.7])
def test_advantages_agree_with_sums_over_the_rest_of_each_episode(trace: float) -> None:
    torch.manual_seed(3)
    rewards, values, bootstrap = torch.randn(4, 9), torch.randn(4, 9), torch.randn(4)
    ended = torch.rand(4, 9) < 0.3
    found = advantages(rewards, ended, values, bootstrap, 0.9, trace)
    for row in range(4):
        for t in range(9):
            total, weight = 0.0, 1.0
            for k in range(t, 9):
                following = values[row, k + 1] if k < 8 else bootstrap[row]
                after = 0.0 if ended[row, k] else 0.9 * following
                total += weight * (rewards[row, k] + after - values[row, k])
                weight *= 0.9 * trace
                if ended[row, k]:
                    break
            assert abs(found[row, t] - total) < 1e-5


@pytest.mark.parametrize("core", CORES)
def test_the_loss_is_that_of_the_formula(core: str, tmp_path: Path) -> None:
    run = small_run(core, entropy_cost=0.3, value_cost=0.7, discount=0.9)
    trainer = ActorCritic(run, tmp_path, CPU)
    block = trainer.act(6, [])
    (logits, values), _ = trainer.model(block.seen, block.last, None, block.fresh)
    target = returns(block.rewards, block.ended, block.bootstrap, 0.9)
    policy = torch.distributions.Categorical(logits=logits)
    actor = -((target - values.detach()) * policy.log_prob(block.actions)).mean()
    expected = actor + 0.7 * (target - values).square().mean() / 2 - 0.3 * policy.entropy().mean()
    torch.testing.assert_close(trainer.loss(block), expected)


@pytest.mark.parametrize("core", CORES)
def test_episodes_that_end_inside_a_block_are_like_episodes_apart(core: str) -> None:
    """In the replay and in acting: from its first step on, an episode knows nothing of the one before."""
    config = ModelConfig(core=core, model_dim=16, memory_size=6)
    policy = Policy(config, sizes=(4, 3), num_actions=3).double()
    seen = torch.stack([torch.randint(4, (2, 12)), torch.randint(3, (2, 12))], dim=-1)
    last = torch.randint(4, (2, 12))
    reset = torch.zeros(2, 12, dtype=torch.bool)
    reset[0, 5] = reset[1, 3] = reset[1, 9] = True
    (logits, values), _ = policy(seen, last, None, reset)
    for row, bounds in ((0, [0, 5, 12]), (1, [0, 3, 9, 12])):
        for begin, end in pairwise(bounds):
            part = slice(begin, end)
            (alone, worth), _ = policy(seen[row : row + 1, part], last[row : row + 1, part])
            torch.testing.assert_close(logits[row, part], alone[0])
            torch.testing.assert_close(values[row, part], worth[0])
    state: Any = None
    with torch.no_grad():
        for t in range(12):
            state = state.reset(reset[:, t]) if state is not None else None
            (acting, _), state = policy.step(seen[:, t], last[:, t], state)
            torch.testing.assert_close(acting, logits[:, t])


def test_in_the_corridor_nobody_writes_notes_by_acting(tmp_path: Path) -> None:
    """What was done on the way makes no difference to what is decided; in a maze it does."""
    for world, told in (("corridor", False), ("maze", True)):
        trainer = ActorCritic(small_run(world=world), tmp_path / world, CPU)
        block = trainer.act(7, [])
        (logits, _), _ = trainer.model(block.seen, block.last)
        (others, _), _ = trainer.model(block.seen, torch.zeros_like(block.last))
        assert torch.equal(logits, others) != told, world


@pytest.mark.parametrize("core", CORES)
def test_the_replay_decides_as_acting_did(core: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block after block, with memory carried and episodes ending anywhere."""
    trainer = ActorCritic(small_run(core, batch_size=16, memory_size=5), tmp_path, CPU)
    original, acted = trainer.model.step, []

    def step(*arguments: Any) -> Any:
        decision, state = original(*arguments)
        acted.append(decision[0])
        return decision, state

    monkeypatch.setattr(trainer.model, "step", step)
    replayed: list[Any] = []
    trainer.model.register_forward_hook(lambda module, inputs, output: replayed.append(output[0]))
    ends, bootstrap, going = 0, None, None
    for _ in range(4):
        acted.clear()
        block: Block = trainer.act(7, [])
        trainer.loss(block)
        logits, values = replayed[-1]
        torch.testing.assert_close(logits, torch.stack(acted[:-1], dim=1), atol=1e-4, rtol=1e-4)
        if bootstrap is not None:  # what the next block was said to be worth
            assert going.any()
            torch.testing.assert_close(values[going, 0], bootstrap[going], atol=1e-4, rtol=1e-4)
        bootstrap, going = block.bootstrap, ~block.ended[:, -1]
        ends += int(block.fresh[:, 1:].sum())
    assert ends > 10


def test_the_last_action_is_part_of_what_is_seen(tmp_path: Path) -> None:
    trainer = ActorCritic(small_run(batch_size=16), tmp_path, CPU)
    block = trainer.act(20, [])
    none = trainer.model.num_actions
    assert (block.last[:, 0] == none).all()
    expected = torch.where(block.ended[:, :-1], none, block.actions[:, :-1])
    assert torch.equal(block.last[:, 1:], expected)
    assert torch.equal(block.fresh[:, 1:], block.ended[:, :-1])


# ------------------------------------------------------------------------------------------------ a run


@pytest.mark.parametrize("world", WORLDS)
def test_a_smoke_run_leaves_a_record_with_curve_and_bounds(world: str, tmp_path: Path) -> None:
    record = train(small_run(world=world), tmp_path / "run")
    metric = "success" if world == "corridor" else "reward"
    assert record["finished"]
    assert record["unit"] == "frames"
    assert record["tokens"] == 20 * 8 * 8
    assert record["bounds"]["oracle"] > record["bounds"]["chance"]
    assert {"step", "training_reward", "episodes", metric} <= set(record["curve"][-1])
    assert set(record["test"]) == {metric}


@pytest.mark.parametrize(("core", "at"), [("feedback", 3), ("feedback", 13), ("transformer", 13), ("lstm", 13)])
def test_a_resumed_run_equals_the_uninterrupted_one_to_the_bit(
    core: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run(core, curriculum="length=2", curriculum_gate=1.0, curriculum_deadline=0.5)
    train(run, tmp_path / "whole")
    update = ActorCritic.update

    def interrupted(self: ActorCritic) -> None:
        update(self)
        if self.progress.step == at:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(ActorCritic, "update", interrupted)
        with pytest.raises(StoppedError, match=f"stopped at step {at}"):
            train(run, tmp_path / "cut")
    torch.manual_seed(99)  # a resumed process comes with other random numbers
    train(run, tmp_path / "cut", resume=True)
    first, second = comparable(tmp_path / "whole"), comparable(tmp_path / "cut")
    assert first[1:] == second[1:]
    assert first[0].keys() == second[0].keys()
    assert all(torch.equal(first[0][name], second[0][name]) for name in first[0])


@pytest.mark.parametrize("stagger", [False, True])
def test_copies_that_all_act_alike_stay_at_the_same_step_unless_they_are_staggered(stagger: bool) -> None:
    run = small_run(stagger=stagger, length=5)
    actors = Actors(run)
    for _ in range(3 * run.train.bptt):
        before = actors.earned.clone()
        _, ended, done = actors.act(torch.from_numpy(actors.envs.world.oracle()))
        assert not before.any()  # nothing is earned on the way
        assert done is None or (done == 1).all()  # an episode that began anew is not counted
        assert done is None or len(done) <= int(ended.sum())
    assert (len(set(actors.envs.world.clock.tolist())) > 1) == stagger
    assert torch.equal(actors.seen, torch.from_numpy(actors.envs.world.observe()))


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_both_optimizers_resume(optimizer: str, tmp_path: Path) -> None:
    run = small_run(optimizer=optimizer, optimizer_epsilon=0.01)
    trainer = ActorCritic(run, tmp_path, CPU)
    trainer.begin(resume=False)
    for _ in range(2):
        trainer.update()
    trainer.save("last")
    trainer.update()
    again = ActorCritic(run, tmp_path, CPU)
    again.restore(tmp_path / "last.safetensors")
    again.update()
    for one, other in zip(trainer.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_scores_do_not_depend_on_how_many_play_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run(world="maze")
    policy = ActorCritic(run, Path(), CPU).model.eval()

    class Sure(torch.nn.Module):
        """Takes the best action, so that no random numbers are shared between copies."""

        no_action = staticmethod(policy.no_action)

        def step(self, *arguments: Any) -> Any:
            (logits, value), state = policy.step(*arguments)
            return (1e6 * logits, value), state

    whole = play(run.task, Trial(9, 5), Sure(), CPU)  # type: ignore[arg-type]
    monkeypatch.setattr("feedback_transformer.environments.play.BATCH", 4)
    np.testing.assert_array_equal(whole, play(run.task, Trial(9, 5), Sure(), CPU))  # type: ignore[arg-type]


def test_a_short_corridor_is_learned(tmp_path: Path) -> None:
    run = preset("corridor").override(
        {"length": "2", "steps": "120", "bptt": "12", "model_dim": "32", "learning_rate": "3e-3", "curriculum": "",
         "eval_every": "120", "test_episodes": "128"}
    )  # fmt: skip
    record = train(run, tmp_path / "run")
    assert record["bounds"] == {"oracle": 1.0, "chance": pytest.approx(0.5, abs=0.1)}
    assert record["test"]["success"] > 0.9


# ------------------------------------------------------------------------------------------------ presets, command


def test_paper_presets_have_the_papers_hyperparameters() -> None:
    maze, easy, water = (preset(name, "paper") for name in ("maze", "maze-easy", "water-maze"))
    for run in (maze, easy):
        assert (run.model.num_layers, run.model.model_dim, run.model.num_heads) == (2, 256, 4)
        assert run.train.bptt == 100
        assert run.train.entropy_cost == 0.0005
    assert (water.model.num_layers, water.model.model_dim, water.model.num_heads) == (2, 64, 1)
    assert (water.train.bptt, water.train.entropy_cost) == (200, 0.0001)
    assert [run.train.batch_size for run in (maze, easy, water)] == [1024, 128, 64]
    assert [run.train.optimizer for run in (maze, easy, water)] == ["adam", "rmsprop", "rmsprop"]
    for run in (maze, easy, water):
        assert (run.train.learning_rate, run.train.discount, run.model.memory_size) == (3e-4, 0.99, 200)
        assert run.task.limit == 200  # type: ignore[attr-defined]
    assert easy.train.optimizer_epsilon == water.train.optimizer_epsilon == 0.01
    assert water.train.steps * 64 * 200 >= 500e6
    lstm = EXPERIMENTS["water-maze"].runs("paper")["water-maze/lstm-seed-0"]
    assert (lstm.model.num_layers, lstm.model.model_dim, lstm.train.learning_rate) == (2, 64, 4e-4)
    lstm = EXPERIMENTS["maze"].runs("paper")["maze/lstm-seed-0"]
    assert (lstm.model.core, lstm.model.num_layers, lstm.model.model_dim) == ("lstm", 3, 256)


def test_a_paper_preset_can_be_built_and_stepped(tmp_path: Path) -> None:
    run = preset("maze", "paper")
    run = replace(run, train=replace(run.train, batch_size=4, bptt=3))
    trainer = ActorCritic(run, tmp_path, CPU)
    trainer.update()
    assert trainer.progress.step == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "maze", "size=4"], "Maze.size = 4 must be odd"),
        (["train", "corridor", "discount=2"], "ActConfig.discount = 2.0 must be from 0 to 1"),
        (["train", "corridor", "optimizer=sgd"], "ActConfig.optimizer = 'sgd' is not known; choose one of adam"),
        (["train", "corridor", "accumulate=2"], "ActConfig.accumulate = 2 must be 1 for A2C"),
        (["train", "coridor"], "no task 'coridor'; did you mean 'corridor'"),
        (["train", "water-maze", "curriculum=size=3"], "changes the task's symbols"),
    ],
)
def test_a_mistake_is_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 2
    assert sentence in capsys.readouterr().err


def test_the_command_trains_evaluates_and_tells_the_bounds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert main(["train", "corridor", "--preset", "smoke", "--quiet", "--out", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "1,280 frames" in said
    assert "oracle 100.00%" in said
    assert main(["evaluate", str(folder), "--json"]) == 0
    record = json.loads((folder / "record.json").read_text())
    assert json.loads(capsys.readouterr().out) == record["test"]
    assert main(["evaluate", str(folder), "length=20", "--episodes", "4"]) == 0


def test_dropout_is_refused(tmp_path: Path) -> None:
    """Other masks at the replay would be another policy than the one that acted."""
    run = preset("corridor", "smoke").override({"dropout": "0.1"})
    with pytest.raises(ConfigError, match=r"ModelConfig.dropout = 0.1 does not work with A2C"):
        ActorCritic(run, tmp_path, torch.device("cpu"))


def test_what_cannot_be_seen_is_refused() -> None:
    policy = Policy(ModelConfig(num_layers=1, model_dim=8, num_heads=1), (5, 3), 4)
    policy.step(torch.tensor([[4, 2]]), policy.no_action(1))
    for seen in ([5, 0], [0, 3], [-1, 0]):
        with pytest.raises(ConfigError, match=r"out of range: parts have 0 to \[4, 2, 4\]"):
            policy.step(torch.tensor([seen]), policy.no_action(1))


def test_several_processes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "feedback_transformer.training.supervised.Team.join", classmethod(lambda cls, *_: cls(rank=0, size=2))
    )
    monkeypatch.setattr("feedback_transformer.training.supervised.Team.wrap", lambda self, module, *_: module)
    with pytest.raises(ConfigError, match="A2C runs in one process"):
        ActorCritic(small_run(), tmp_path, CPU)
    assert isinstance(small_run().train, ActConfig)


@pytest.mark.parametrize("eval_every", [1, 10])
def test_a_policy_that_becomes_nonsense_is_a_sentence(
    eval_every: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = ["learning_rate=1e30", f"eval_every={eval_every}"]
    assert main(["train", "corridor", "--preset", "smoke", *fields, "--out", str(tmp_path / "run")]) == 1
    complained = capsys.readouterr().err
    assert "is no longer a finite number at step" in complained
    assert "Traceback" not in complained
