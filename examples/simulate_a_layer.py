"""What would int4 do to the first convolution of a ResNet-18? Compare outputs inside a `with`."""

import sys
from pathlib import Path

import torch

import halfstep as hs

sys.path.append(str(Path(__file__).parents[1]))
from benchmarks.models import ResNet18

torch.manual_seed(0)
model = ResNet18().eval()
images = torch.randn(2, 3, 64, 64)
spec = hs.QSpec(hs.int4, hs.PerChannel(0), symmetric=True)

with torch.no_grad():
    before = model(images)
    with hs.simulate(model, {"conv1": spec}) as report:
        simulated = model(images)
    after = model(images)

print(report)  # -> conv1  weight     23.1      0.00%
print(f"weight {report['conv1']['weight'].sqnr:.1f} dB")  # -> weight 23.1 dB
change = (simulated - before).norm() / before.norm()
print(f"the output changes by {change:.1%}")  # -> the output changes by 1.8%
print("restored:", torch.equal(before, after))  # -> restored: True
