"""Observe a CNN's channels, on one data set and then on another, and set a range by hand."""

import torch
from torch import nn

import halfstep as hs

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)).eval()
day, night = torch.rand(16, 3, 16, 16), torch.rand(16, 3, 16, 16) / 10

per_channel = hs.MinMaxObserver(hs.QSpec(hs.uint8, hs.PerChannel(1)))
observers = hs.calibrate(model, day, {"1": per_channel})
observer = observers["1"]
by_day = observer.max_val.clone()
print(observer.max_val.shape)  # -> torch.Size([1, 4, 1, 1])

# Save the state, forget everything, and see other data: as if the observer were new.
saved = {name: value.clone() for name, value in observer.state_dict().items()}
observer.reset()
print(observer.count)  # -> 0
observer(model[:2](night))
fresh = hs.calibrate(model, night, {"1": per_channel})["1"]
print(torch.equal(observer.max_val, fresh.max_val))  # -> True

# Undo the reset.
observer.load_state_dict(saved)
print(torch.equal(observer.max_val, by_day))  # -> True

# Or say what the range is.
observer.set_range(torch.zeros(4), torch.tensor([1.0, 2.0, 3.0, 4.0]))
scale, zero_point = observer.qparams()
print((scale.flatten() * 255).tolist())  # -> [1.0, 2.0, 3.0, 4.0]
