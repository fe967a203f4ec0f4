// Numbers as people read them, and elements of the page. Text of programs becomes text nodes only.

const STEPS = ["", "k", "M", "G", "T"];

export function count(value) {
  if (value === null || value === undefined) return "–";
  let step = 0;
  while (value >= 1000 && step < STEPS.length - 1) {
    value /= 1000;
    ++step;
  }
  const digits = value >= 100 || (step === 0 && Number.isInteger(value)) ? 0 : 1;
  return value.toFixed(digits) + STEPS[step];
}

// With a unit behind it: 74.6 MB/s.
export function amount(value, unit) {
  if (value === null || value === undefined) return "–";
  const text = count(value);
  const letter = text.match(/[kMGT]$/);
  return letter ? `${text.slice(0, -1)} ${letter[0]}${unit}` : `${text} ${unit}`;
}

// A rate, of bytes or of anything else.
export function speed(value, unit) {
  if (value === null || value === undefined) return "–";
  return unit === "B/s" ? amount(value, unit) : `${count(value)}/s`;
}

export function duration(nanoseconds) {
  if (!nanoseconds) return "–";
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]])
    if (nanoseconds >= size) {
      const value = nanoseconds / size;
      return `${value.toFixed(value >= 100 ? 0 : 1)} ${unit}`;
    }
  return `${nanoseconds} ns`;
}

export function qpn(number) {
  return number ? "0x" + number.toString(16).padStart(6, "0") : "–";
}

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes))
    if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : value);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Makes `parent` hold just these elements in this order, and moves only those that must: what has
// the focus keeps it.
export function arrange(parent, elements) {
  const kept = new Set(elements);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  elements.forEach((element, i) => {
    if (parent.children[i] !== element) parent.insertBefore(element, parent.children[i] ?? null);
  });
}
