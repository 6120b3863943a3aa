"""Keep one layer in float, give another its own format, and store the recipe as JSON."""

import torch
from torch import nn

import halfstep as hs

torch.manual_seed(0)
model = nn.Sequential(
    *(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.Sigmoid()),
    *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4)),
).eval()
images = torch.randn(32, 3, 12, 12)
four_bits = hs.QSpec(hs.int4, hs.PerChannel(0), symmetric=True)

# The first rule that matches wins; what none of these matches is left to static_int8.
recipe = hs.recipes.static_int8().with_rules(
    hs.Rule("0", keep_float=True),
    hs.Rule(torch.sigmoid, keep_float=True),
    hs.Rule(nn.Linear, weight=four_bits, input=hs.uint8, observer=hs.HistogramObserver),
)
result = hs.ptq.quantize(model, images, recipe)
for row in result.coverage:
    print(row.layer, row.op, row.runs, row.why)
# -> 0 conv2d float the recipe keeps it in float
# -> 1 relu float its operand conv2d is computed in float
# -> 2 conv2d int8
# -> 3 sigmoid float the recipe keeps it in float
# -> 6 linear int8, int4 weights

text = recipe.to_json()
print(len(hs.Recipe.from_json(text)) == len(recipe))  # -> True

# A rule that matches nothing is an error: a misspelled layer does not stay unnoticed.
try:
    hs.ptq.quantize(model, images, hs.recipes.static_int8() + hs.Rule("fc", keep_float=True))
except hs.ArgumentError as error:
    print(error)  # -> the rule for 'fc' matches nothing that Sequential computes
