"""Calibrate with a loop of one's own, forget, and calibrate on other data."""

import torch
from torch import nn

import halfstep as hs

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 100, 10)).eval()
day, night = torch.rand(32, 3, 12, 12), torch.rand(32, 3, 12, 12) / 20

# Runs in float and observes; the example is for tracing alone.
prepared = hs.ptq.prepare(model, day[:2])
for batch in day.split(8):
    prepared(batch)
by_day = hs.ptq.convert(prepared)

hs.reset_observers(prepared)
prepared(night)
by_night = hs.ptq.convert(prepared)
print(by_day.summary.batches, by_night.summary.batches)  # -> 4 1


def error(result: hs.Result, images: torch.Tensor) -> float:
    """How far the output is from that of the float model, relative to its size."""
    with torch.no_grad():
        return float((result.model(images) - model(images)).norm() / model(images).norm())


# Ranges that fit are finer; those of the night cut off the day.
print(error(by_night, night) < error(by_day, night))  # -> True
print(error(by_day, day) < 0.02, error(by_night, day) > 0.5)  # -> True True

# In one line, from any result that still has its float model.
again = by_day.recalibrate(night)
print(torch.equal(again.model(night), by_night.model(night)))  # -> True
