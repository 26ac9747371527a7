// A node's position k in the arrays of `nodes` -> its name, group, colour, picture, and a button that opens it.

const { nodes, words, counts } = data;
const total = nodes.id.length;
const domain = (k) => (nodes.target[k] ? "target" : "source");
const group = (k) => (nodes.group[k] > 0 ? String(nodes.group[k]) : "");
const label = (k) => nodes.label?.[k] ?? nodes.id[k];
const LABEL_LENGTH = 90; // characters of a label on a button
const userColumns = Object.entries(data.columns); // name, values
const written = (value) => (value === null ? "" : typeof value === "boolean" ? (value ? "yes" : "no") : String(value));
const counted = (number) => `${count(number)} ${number === 1 ? words.one : words.many}`;
// A sentence of the report, with values in the places that it names.
const say = (name, values = {}) => words[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);

// What somebody decided on a node: null, or { symbol, name, colour }, see page.js.
let decoration = () => null;

// One colour and one shape for one group, wherever it is shown.
const groups = new Map(data.groups.map((g) => [g.number, g]));
function swatch(kind, form = "circle") {
  return svg("svg", { class: `swatch fill-${kind}`, viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("use", { href: `#shape-${form}` }));
}
const groupSwatch = (number) => swatch(groups.get(number)?.hue ?? "text", groups.get(number)?.shape);

const pixels = data.images && Uint8Array.from(atob(data.images.pixels), (c) => c.charCodeAt(0));
function image(k, size = "") {
  const { rows, columns } = data.images;
  const canvas = make("canvas", { class: `image ${size}`, width: columns, height: rows, role: "img", "aria-label": `image of ${label(k)}` });
  const context = canvas.getContext("2d");
  const picture = context.createImageData(columns, rows);
  for (let i = 0; i < rows * columns; i++) {
    const value = 255 - pixels[k * rows * columns + i];
    picture.data.set([value, value, value, 255], 4 * i);
  }
  context.putImageData(picture, 0, 0);
  return canvas;
}

function decided(k) {
  const shown = decoration(k);
  return shown ? [make("span", { class: `decision ${shown.class ?? ""}`, role: "img", title: shown.name ?? "", "aria-label": shown.name ?? shown.symbol }, shown.symbol)] : [];
}
function button(k) {
  const content = data.images ? image(k) : make("span", {}, shortened(label(k), LABEL_LENGTH));
  const mark = nodes.group[k] > 0 ? [groupSwatch(nodes.group[k])] : [];
  return make("button", { type: "button", class: "node", title: nodes.id[k], "data-node": k, onclick: () => open(k) }, ...decided(k), ...mark, content);
}
function redecorate() {
  for (const each of document.querySelectorAll("button.node")) {
    each.querySelector(".decision")?.remove();
    each.prepend(...decided(Number(each.dataset.node)));
  }
}
// The buttons that the page came with.
for (const each of document.querySelectorAll("button.node")) {
  const k = Number(each.dataset.node);
  each.addEventListener("click", () => open(k));
  if (data.images) each.lastElementChild.replaceWith(image(k));
}
