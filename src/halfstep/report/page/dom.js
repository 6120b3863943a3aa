// Elements. Text is always set as text: names come from users.

const byId = (id) => document.getElementById(id);

// make("p.muted", {title: "..."}, "text", element, ...): what is null is left out.
function make(kind, attributes = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// A list of facts: pairs of a name and a text; what is empty is left out, what is long gets room.
function facts(pairs) {
  const known = pairs.filter(([, text]) => text);
  return make("dl.facts", {}, ...known.map(([name, text]) =>
    make(text.length > 24 ? "div.long" : "div", {}, make("dt", {}, name), make("dd", {}, text))));
}

// A section of the panel, with its heading.
const block = (title, ...children) => make("div.block", {}, make("h3", {}, title), ...children);
