"""A run with checkpoints, in which rank 1 kills itself at a step, the first time; at step 0 never, and it goes on for long."""

import os
import signal
import sys

import torch
from common import OUT, elastic, flat, learned, model

import inducing

die_at = int(sys.argv[2])
network, likelihood = model()
backwards = []


def count(gradient):
    backwards.append(True)
    first_time = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if os.environ["RANK"] == "1" and len(backwards) == die_at and first_time:
        os.kill(os.getpid(), signal.SIGKILL)


network.inducing_points.register_hook(count)
log = [inducing.JSONLog(OUT / "log.jsonl")] if inducing.distributed.is_first() else []
elastic(
    network,
    likelihood,
    num_steps=40 if die_at else 100_000,
    checkpoint=OUT / "run",
    checkpoint_seconds=0.0,
    callbacks=log,
)
torch.save(flat(learned(network, likelihood)), OUT / f"killed-{os.environ['RANK']}.pt")
sys.stdout.write(f"took {len(backwards)} steps\n")
