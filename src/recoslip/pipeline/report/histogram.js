// Fractions per bin of the score -> a histogram with a logarithmic axis, and below it where each group scores (SVG).

const PLOT = { left: 58, right: 12, top: 8, bottom: 40, row: 9, height: 250 }; // pixels
const MAX_ROWS = 8; // groups below the axis
const SERIES = [["source", "source", ""], ["calibration", "source", "3 4"], ["target", "target", ""]]; // name, colour, dashes
let histogram = data.histogram;

// Of the nodes on the page, when they have other scores than the run gave them.
function histogramOfScores() {
  const edges = data.histogram.bin_edges;
  const bins = edges.length - 1;
  const result = { bin_edges: edges, source: Array(bins).fill(0), calibration: Array(bins).fill(0), target: Array(bins).fill(0) };
  const size = { source: 0, target: 0 };
  for (let k = 0; k < total; k++) size[domain(k)] += 1;
  for (let k = 0; k < total; k++) result[domain(k)][binOf(nodes.score[k])] += 1 / size[domain(k)];
  return result;
}
const binOf = (score) => Math.min(data.histogram.bin_edges.length - 2, Math.max(0, Math.floor(score * (data.histogram.bin_edges.length - 1))));
const lowestListed = () => nodes.score.reduce((lowest, score, k) => (list[k] ? Math.min(lowest, score) : lowest), Infinity);

function steps(fractions, x, y) {
  const edges = histogram.bin_edges;
  return fractions.map((fraction, i) => `${i ? "L" : "M"}${x(edges[i]).toFixed(1)},${y(fraction).toFixed(1)}H${x(edges[i + 1]).toFixed(1)}`).join("");
}

function rug(x, top) {
  return data.groups.slice(0, MAX_ROWS).flatMap((g, row) => {
    const inside = Array(histogram.bin_edges.length - 1).fill(0);
    for (let k = 0; k < total; k++) if (nodes.group[k] === g.number && list[k]) inside[binOf(nodes.score[k])] += 1;
    const most = Math.max(1, ...inside);
    return inside.flatMap((number, i) => (number ? [svg("rect", {
      x: x(histogram.bin_edges[i]), y: top + row * PLOT.row, width: x(histogram.bin_edges[i + 1]) - x(histogram.bin_edges[i]), height: PLOT.row - 2,
      class: `fill-${hue(g.number)}`, "fill-opacity": (0.35 + (0.65 * number) / most).toFixed(2),
    })] : []));
  });
}

function drawHistogram() {
  const width = $("histogram").clientWidth;
  if (!width) return;
  const rows = PLOT.row * Math.min(MAX_ROWS, data.groups.length);
  const drawn = SERIES.filter(([name]) => histogram[name].some((fraction) => fraction));
  const lowest = Math.min(...drawn.flatMap(([name]) => histogram[name].filter((fraction) => fraction)));
  const decades = Math.max(1, Math.ceil(-Math.log10(lowest) - 1e-9));
  const [bottom, end] = [PLOT.top + PLOT.height, width - PLOT.right];
  const x = (score) => PLOT.left + (end - PLOT.left) * score;
  const y = (fraction) => bottom - (PLOT.height - 4) * Math.max(0, 1 + Math.log10(Math.max(fraction, 1e-12)) / decades);
  const text = (at, down, words, anchor) => svg("text", { x: at, y: down, "text-anchor": anchor }, words);
  const parts = [];
  for (let decade = 0; decade <= decades; decade++) {
    const at = y(10 ** -decade);
    parts.push(svg("line", { x1: PLOT.left, x2: end, y1: at, y2: at, class: "grid" }), text(PLOT.left - 6, at + 4, `${Number((100 * 10 ** -decade).toPrecision(1))} %`, "end"));
  }
  const labels = bottom + rows + 18;
  for (const score of width < 500 ? [0, 0.5, 1] : [0, 0.2, 0.4, 0.6, 0.8, 1]) parts.push(text(x(score), labels, String(score), score === 1 ? "end" : "middle"));
  parts.push(text((PLOT.left + end) / 2, labels + 18, "score; fractions of the nodes on a logarithmic axis", "middle"));
  for (const [name, shade, dashes] of drawn) parts.push(svg("path", { d: steps(histogram[name], x, y), class: `line stroke-${shade}`, "stroke-dasharray": dashes }));
  parts.push(...rug(x, bottom + 4));
  const line = lowestListed();
  if (line <= 1) parts.push(svg("line", { x1: x(line), x2: x(line), y1: PLOT.top, y2: bottom + rows, class: "threshold", "stroke-dasharray": "6 4" }));
  const height = labels + 24;
  $("histogram").replaceChildren(svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, ...parts));
  histogramWords(drawn, line);
}

const median = (fractions) => {
  let sum = 0;
  const bin = fractions.findIndex((fraction) => (sum += fraction) >= 0.5 - 1e-6);
  return histogram.bin_edges[bin + 1];
};
function histogramWords(drawn, line) {
  $("histogram-legend").replaceChildren(
    ...drawn.map(([name, shade, dashes]) => make("li", {}, svg("svg", { class: `dash stroke-${shade}`, viewBox: "0 0 24 6", "aria-hidden": "true" }, svg("line", { x1: 0, x2: 24, y1: 3, y2: 3, "stroke-dasharray": dashes })), name)),
    ...data.groups.slice(0, MAX_ROWS).map((g) => make("li", {}, groupSwatch(g.number), `group ${g.number}, below the axis`)));
  const halves = drawn.filter(([name]) => median(histogram[name]) !== undefined).map(([name]) => `half of the ${name} nodes score below ${median(histogram[name]).toFixed(2)}`);
  const listed = line <= 1 ? `The lowest score on the list is ${line.toFixed(2)}.` : "No node is listed.";
  $("histogram-text").textContent = `${capitalised(and(halves))}. ${listed}`;
}
levelChanged.push(drawHistogram);
