"""The page of an explanation: one HTML file with its data, its plots and the code that draws them.

The summary and the table of layers are written by the template, so that they are there without
scripts; the plots and the panel of a layer are drawn from the data by the scripts, in order:
"""

SCRIPTS = (
    "dom.js",
    "words.js",
    "charts.js",
    "depth.js",
    "values.js",
    "split.js",
    "weights.js",
    "panel.js",
    "table.js",
    "main.js",
)
