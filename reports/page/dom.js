// Elements, into which text only ever comes as text.

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

let chosenIds = 0;

// A labelled select; `options` are [value, text] or texts.
function select(label, options, value, onChange) {
  const id = `choice-${chosenIds++}`;
  const entries = options.map((option) => (Array.isArray(option) ? option : [option, option]));
  const list = make("select", { id, change: () => onChange(list.value) });
  for (const [key, text] of entries) list.append(make("option", { value: key }, text === "" ? "null" : text));
  list.value = value;
  return make("div", { class: "control" }, make("label", { for: id }, label), list);
}
