// Coordinates of the nodes -> a map on a canvas: hover, zoom, pan, lasso, what the search finds, neighbours as lines.

const canvas = $("map-canvas");
const surface = canvas.getContext("2d");
const tooltip = $("tooltip");
const RADIUS = total > 10000 ? 2 : 3;
const REACH = 14; // pixels within which a pointer means a node
const CLICK = 4; // pixels that a pointer may move between down and up for a click
const MARGIN = 16;
const MAX_ZOOM = 200;
const MAX_NAMES = 6; // of groups, on the map
const TOOLTIP_COLUMNS = 6;
const range = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
const [[left, right], [low, high]] = [range(nodes.x), range(nodes.y)];
const whole = () => ({ x: (left + right) / 2, y: (low + high) / 2, zoom: 1 });
let view = whole(); // what is in the middle, and how large
let size = { width: 0, height: 0 };
let hovered = null;
let found = null; // Uint8Array: what the search finds; null without a search
let selected = null; // Set of nodes, or null
let lasso = null; // points on the screen while it is drawn
let isSelecting = false;

const scale = () => view.zoom * Math.min((size.width - 2 * MARGIN) / Math.max(1e-9, right - left), (size.height - 2 * MARGIN) / Math.max(1e-9, high - low));
const toScreen = (k) => [(nodes.x[k] - view.x) * scale() + size.width / 2, (view.y - nodes.y[k]) * scale() + size.height / 2];

// Kinds of nodes that are told apart: name, colour, shape, which nodes; groups are drawn last, the first of them on top.
function kinds() {
  return [
    [words.source, "source", "circle", (k) => !nodes.target[k]],
    [words.not_listed, "target", "circle", (k) => nodes.target[k] && !list[k]],
    [words.no_group, "text", "circle", (k) => list[k] && !(nodes.group[k] > 0)],
    ...data.groups.map((g) => [groupName(g), g.hue, g.shape, (k) => list[k] && nodes.group[k] === g.number]),
  ];
}
const groupName = (g) => shortened(g.name ?? say("group", { number: g.number }), 40);

function trace(context, form, x, y, radius) {
  context.beginPath();
  if (form === "circle") context.arc(x, y, radius, 0, 2 * Math.PI);
  else $(`shape-${form}`).firstElementChild.getAttribute("points").split(" ").map((point) => point.split(",").map((part) => ((Number(part) - 6) * radius) / 5)).forEach(([u, v], i) => (i ? context.lineTo(x + u, y + v) : context.moveTo(x + u, y + v)));
  context.closePath();
}

// A dot is drawn once and copied: that is many times as fast as filling a path for every node.
function sprite(paint, form, radius) {
  const ratio = devicePixelRatio || 1;
  const side = 2 * radius + 4;
  const drawing = new OffscreenCanvas(Math.ceil(side * ratio), Math.ceil(side * ratio));
  const context = drawing.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = paint;
  trace(context, form, side / 2, side / 2, radius);
  context.fill();
  const dot = drawing.transferToImageBitmap();
  return (x, y) => surface.drawImage(dot, x - side / 2, y - side / 2, side, side);
}

function drawDots() {
  const isFaded = (k) => (found && !found[k]) || (selected && !selected.has(k));
  const place = (k, draw) => {
    const [x, y] = toScreen(k);
    if (x < -9 || y < -9 || x > size.width + 9 || y > size.height + 9) return;
    surface.globalAlpha = isFaded(k) ? 0.13 : 0.8;
    draw(x, y);
  };
  const [others, grouped] = [kinds().slice(0, 3), kinds().slice(3)];
  for (const [, shade, form, belongs] of [...others, ...grouped.reverse()]) {
    const draw = sprite(colour(shade), form, shade === "source" || shade === "target" ? RADIUS : RADIUS + 1.5);
    for (let k = 0; k < total; k++) if (belongs(k)) place(k, draw);
  }
  surface.globalAlpha = 1;
}

function ring(k, radius, width) {
  const [x, y] = toScreen(k);
  surface.lineWidth = width;
  trace(surface, "circle", x, y, radius);
  surface.stroke();
}

// The names of the largest groups, each above the middle of its members and none over another.
let places = null; // [group, x, y] on the map; null after another level was chosen
function placesOfNames() {
  const largest = data.groups.filter(({ evidence }) => evidence).sort((a, b) => b.size - a.size).slice(0, MAX_NAMES);
  return largest.flatMap((g) => {
    const members = positions((k) => nodes.group[k] === g.number && list[k]);
    if (!members.length) return [];
    const [x, y] = [nodes.x, nodes.y].map((of) => members.map((k) => of[k]).sort((a, b) => a - b));
    return [[g, x[Math.floor(x.length / 2)], y[Math.floor(0.75 * y.length)]]]; // a few nodes may lie elsewhere
  });
}
function drawNames() {
  places ??= placesOfNames();
  surface.font = "600 14px system-ui, sans-serif";
  surface.textAlign = "center";
  surface.lineJoin = "round";
  surface.lineWidth = 4;
  const taken = [];
  for (const [g, u, v] of places) {
    const text = shortened(groupName(g), size.width < 500 ? 24 : 40);
    const half = surface.measureText(text).width / 2 + 4;
    const x = Math.min(size.width - half, Math.max(half, (u - view.x) * scale() + size.width / 2));
    const y = Math.max(18, (view.y - v) * scale() + size.height / 2 - 10);
    if (y > size.height || taken.some(([left, top, other]) => Math.abs(left - x) < other + half && Math.abs(top - y) < 18)) continue;
    taken.push([x, y, half]);
    surface.strokeStyle = colour("back");
    surface.strokeText(text, x, y);
    surface.fillStyle = colour(g.hue);
    surface.fillText(text, x, y);
  }
}

function drawLines(k) {
  const [x, y] = toScreen(k);
  surface.strokeStyle = colour("text");
  surface.lineWidth = 1;
  surface.globalAlpha = 0.55;
  surface.beginPath();
  for (const neighbour of data.details[k]?.neighbours ?? []) {
    surface.moveTo(x, y);
    surface.lineTo(...toScreen(neighbour));
  }
  surface.stroke();
  surface.globalAlpha = 1;
}

function drawDecisions() {
  surface.font = "700 14px system-ui, sans-serif";
  surface.textAlign = "center";
  for (let k = 0; k < total; k++) {
    const shown = decoration(k);
    if (!shown) continue;
    const [x, y] = toScreen(k);
    surface.lineWidth = 3;
    surface.strokeStyle = colour("back");
    surface.strokeText(shown.symbol, x, y - 5);
    surface.fillStyle = colour(shown.colour ?? "text") || shown.colour;
    surface.fillText(shown.symbol, x, y - 5);
  }
}

function drawMap() {
  const ratio = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width) return;
  size = { width, height };
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  surface.setTransform(ratio, 0, 0, ratio, 0, 0);
  surface.clearRect(0, 0, width, height);
  const opened = openNode();
  for (const k of new Set([hovered, opened])) if (k !== null) drawLines(k);
  drawDots();
  drawNames();
  surface.strokeStyle = colour("text");
  if (found) for (let k = 0; k < total; k++) if (found[k]) ring(k, RADIUS + 4, 1.2);
  for (const k of new Set([hovered, opened])) if (k !== null) ring(k, RADIUS + 6, 2);
  drawDecisions();
  if (lasso) drawLasso();
}
let isAwaited = false;
function redraw() {
  if (isAwaited) return;
  isAwaited = true;
  requestAnimationFrame(() => { isAwaited = false; drawMap(); });
}

function drawLasso() {
  surface.strokeStyle = colour("link");
  surface.lineWidth = 2;
  surface.setLineDash([5, 4]);
  surface.beginPath();
  lasso.forEach(([x, y], i) => (i ? surface.lineTo(x, y) : surface.moveTo(x, y)));
  surface.closePath();
  surface.stroke();
  surface.setLineDash([]);
}

function showLegend() {
  $("map-legend").replaceChildren(...kinds()
    .map(([name, shade, form, belongs]) => [name, shade, form, nodes.id.reduce((sum, _, k) => sum + Boolean(belongs(k)), 0)])
    .filter(([, , , number]) => number)
    .map(([name, shade, form, number]) => make("li", {}, swatch(shade, form), `${name} (${count(number)})`)));
  $("map-text").textContent = say("map", { nodes: counted(total) });
}

// The node that a point of the map means, or null.
function nearestTo([x, y], reach) {
  let [nearest, least] = [null, reach ** 2];
  for (let k = 0; k < total; k++) {
    const [u, v] = toScreen(k);
    const distance = (u - x) ** 2 + (v - y) ** 2;
    if (distance < least) [nearest, least] = [k, distance];
  }
  return nearest;
}

function hover(k) {
  if (k === hovered) return;
  hovered = k;
  canvas.classList.toggle("on-node", k !== null);
  tooltip.hidden = k === null;
  if (k !== null) {
    const rows = [["score", nodes.score[k].toFixed(3)], ...(group(k) ? [["group", group(k)]] : []), ...userColumns.filter(([name]) => name !== data.label_column).slice(0, TOOLTIP_COLUMNS).map(([name, values]) => [name, shortened(written(values[k]), 60)])];
    tooltip.replaceChildren(
      ...(data.images ? [image(k)] : []),
      make("b", {}, shortened(label(k), 120)),
      ...(label(k) === nodes.id[k] ? [] : [make("span", { class: "quiet" }, nodes.id[k])]),
      ...rows.filter(([, value]) => value).map(([name, value]) => make("span", {}, `${name}: ${value}`)));
    const [x, y] = toScreen(k);
    const box = tooltip.getBoundingClientRect();
    tooltip.style.left = `${Math.max(0, Math.min(x + 14, size.width - box.width))}px`;
    tooltip.style.top = `${y + box.height + 20 > size.height ? Math.max(0, y - box.height - 12) : y + 14}px`;
  }
  redraw();
}

function zoomBy(factor, [x, y] = [size.width / 2, size.height / 2]) {
  const before = scale();
  view.zoom = Math.min(MAX_ZOOM, Math.max(0.5, view.zoom * factor));
  const change = 1 / before - 1 / scale(); // what is under the pointer stays there
  view.x += (x - size.width / 2) * change;
  view.y -= (y - size.height / 2) * change;
  moved();
}
function panBy(dx, dy) {
  view.x -= dx / scale();
  view.y += dy / scale();
  moved();
}
function showAll() {
  view = whole();
  moved();
}
function moved() {
  hover(null);
  canvas.classList.toggle("zoomed", view.zoom > 1 || isSelecting); // then a finger moves the map, not the page
  redraw();
}

// Selection
function setSelected(chosen) {
  selected = chosen && chosen.length ? new Set(chosen) : null;
  $("clear").hidden = !selected;
  if (chosen) announce(selected ? say("selected", { nodes: counted(chosen.length) }) : words.nothing_selected);
  if (selected) $("filter").value = "all";
  select();
  redraw();
}
function isInside([x, y], corners) {
  let inside = false;
  for (let i = 0, j = corners.length - 1; i < corners.length; j = i++) {
    const [[u, v], [s, t]] = [corners[i], corners[j]];
    if (v > y !== t > y && x < ((s - u) * (y - v)) / (t - v) + u) inside = !inside;
  }
  return inside;
}
const positions = (belongs) => Array.from({ length: total }, (_, k) => k).filter(belongs);
function setSelecting(on) {
  isSelecting = on;
  $("lasso").setAttribute("aria-pressed", on);
  canvas.classList.toggle("selecting", on);
  moved();
}
$("lasso").addEventListener("click", () => setSelecting(!isSelecting));
$("clear").addEventListener("click", () => { setSelected(null); announce(words.nothing_selected); $("lasso").focus(); });
$("select-view").addEventListener("click", () => setSelected(positions((k) => { const [x, y] = toScreen(k); return x >= 0 && y >= 0 && x <= size.width && y <= size.height; })));
$("zoom-in").addEventListener("click", () => zoomBy(1.5));
$("zoom-out").addEventListener("click", () => zoomBy(1 / 1.5));
$("zoom-all").addEventListener("click", showAll);

// Pointers: one moves the map, draws the lasso or clicks; two zoom.
const pointers = new Map(); // id -> where
let travelled = 0; // pixels since the first pointer came down
const at = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, at(event));
  if (pointers.size === 1) travelled = 0;
  lasso = isSelecting && pointers.size === 1 ? [at(event)] : null;
});
canvas.addEventListener("pointermove", (event) => {
  const here = at(event);
  const before = pointers.get(event.pointerId);
  if (!before) return hover(nearestTo(here, REACH));
  const [dx, dy] = [here[0] - before[0], here[1] - before[1]];
  travelled += Math.hypot(dx, dy);
  pointers.set(event.pointerId, here);
  if (lasso) { lasso.push(here); redraw(); }
  else if (pointers.size === 2) {
    const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
    const apart = (point) => Math.max(1, Math.hypot(point[0] - other[0], point[1] - other[1]));
    zoomBy(apart(here) / apart(before), [(here[0] + other[0]) / 2, (here[1] + other[1]) / 2]);
  } else if (travelled > CLICK) panBy(dx, dy);
});
function release(event) {
  const wasDown = pointers.delete(event.pointerId);
  if (!wasDown || pointers.size) return;
  const drawn = lasso;
  lasso = null;
  if (drawn && drawn.length > 2 && travelled > CLICK) setSelected(positions((k) => isInside(toScreen(k), drawn)));
  else if (event.type === "pointerup" && travelled <= CLICK) {
    const k = nearestTo(at(event), REACH);
    if (k !== null) open(k);
  }
  redraw();
}
canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", release);
canvas.addEventListener("pointerleave", () => { if (!pointers.size) hover(null); });
// Without focus the wheel scrolls the page, so that nobody gets stuck on the map; a pinch on a touchpad always zooms.
canvas.addEventListener("wheel", (event) => {
  if (!event.ctrlKey && document.activeElement !== canvas) return;
  event.preventDefault();
  zoomBy(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), at(event));
}, { passive: false });
const STEP = 60; // pixels that an arrow moves the map
const KEYS = {
  "+": () => zoomBy(1.5), "=": () => zoomBy(1.5), "-": () => zoomBy(1 / 1.5), 0: showAll,
  ArrowLeft: () => panBy(STEP, 0), ArrowRight: () => panBy(-STEP, 0), ArrowUp: () => panBy(0, STEP), ArrowDown: () => panBy(0, -STEP),
};
const middle = () => nearestTo([size.width / 2, size.height / 2], Infinity);
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter") open(hovered ?? middle());
  else if (KEYS[event.key]) { KEYS[event.key](); hover(middle()); announce(label(hovered)); }
  else return;
  event.preventDefault();
});
canvas.addEventListener("blur", () => hover(null));

themed.push(drawMap);
new ResizeObserver(() => { hover(null); drawMap(); }).observe($("map"));
