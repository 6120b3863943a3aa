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

// A list of facts: pairs of a name and a value; what is null or empty is left out.
function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return make("dl.facts", {}, ...known.map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

// A section of the panel, with its heading.
const block = (title, ...children) => make("div.block", {}, make("h3", {}, title), ...children);
