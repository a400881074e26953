"""Whether a run that was restored from a checkpoint goes on, and with how many steps."""

from __future__ import annotations

from pathlib import Path

from inducing.inference.checkpoint import CheckpointError
from inducing.inference.recipes import Recipe
from inducing.inference.state import StopReason, TrainingState

REASONS: dict[StopReason, str] = {
    "num_steps": "all steps are done",
    "callback": "a callback stopped it",
    "patience": "the objective stopped rising for patience steps",
}


def resume(state: TrainingState, recipe: Recipe, folder: str | Path) -> str:
    """Let a restored run go on if it is not finished, or if num_steps was raised; return the message for the user."""
    before, state.num_steps = state.num_steps, recipe.num_steps
    if recipe.num_steps < state.step:
        raise CheckpointError(
            f"num_steps is {recipe.num_steps}, but the run in {folder} has taken {state.step} steps already. Give at least "
            f"num_steps={state.step}, or use another folder"
        )
    if recipe.num_steps > before:
        state.stopped = None
    elif recipe.num_steps == state.step:
        state.stopped = state.stopped or "num_steps"
    if state.stopped is not None:
        return (
            f"the run in {folder} is finished after step {state.step}: {REASONS[state.stopped]}. To train on, raise "
            f"num_steps above {recipe.num_steps}"
        )
    message = f"continuing after step {state.step} from {folder}"
    if recipe.num_steps == before:
        return message
    message += f", with num_steps={recipe.num_steps} instead of {before}"
    if recipe.depends_on_num_steps:
        message += "; from here on the schedule and early_samples follow the new num_steps"
    return message
