// The error along the depth of the network.

// A row for each error that is a number; exact layers have no place on a scale of decibels.
function depthRows(layers) {
  return layers.flatMap((layer, place) => {
    const { op, verdict } = layer;
    const name = nameOf(layer);
    const errors = [["alone", layer.local], ["so far", layer.accumulated]];
    return errors
      .filter(([, error]) => error && isFiniteNumber(error.sqnr))
      .map(([quantized, { sqnr }]) => ({ place, name, op, verdict, quantized, sqnr }));
  });
}

// Draws it; a click opens the nearest layer. Returns what marks a layer in it.
async function drawDepth(element, layers, open) {
  const errors = depthRows(layers);
  if (!errors.length) {
    element.append("There is no error to plot: no layer differs by a finite amount.");
    return () => {};
  }
  const label = "SQNR of each layer, alone and so far; the table below has the same numbers.";
  const last = layers.length - 1;
  const view = await draw(element, label, "depth", { errors }, { chosen: -1, last });
  view.addEventListener("click", (event) => {
    const left = element.querySelector("svg").getBoundingClientRect().left + view.origin()[0];
    open(within(Math.round(view.scale("x").invert(event.clientX - left)), layers.length));
  });
  return (place) => view.signal("chosen", place).runAsync();
}
