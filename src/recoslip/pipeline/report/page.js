// Facts -> the words of the page; then all parts are drawn, and another script may add to them.
//
// A script that runs before this one may define window.recoslipReview(api). It is called once, after everything is drawn.
// A node is its position k in the arrays of api.nodes. The api:
//   data, nodes           what the page was made of; nodes.id, label, target, score, p_value, listed, group, x, y
//   make(tag, attributes, ...children)   an element; strings become text, "onclick" and the like take functions
//   slot                  the section below the header, hidden and empty
//   announce(text)        have a screen reader say it
//   open(k), closeDetail(), openNode()   the dialog of a node; openNode() is null when it is closed
//   onDetail(fn(k, container))           called whenever a dialog is filled; the container is at its top
//   onGroup(fn(group, container))        called at once for every card of a group; the container is below its heading
//   addColumn(heading, value(k), { numeric })   a column of the table; value gives a string, a number or null
//   addFilter(name, predicate(k))        an entry of the table's filter
//   decoration(fn(k))     what to show at a node: null, or { symbol, name, class, colour }: a short text, what it
//                         means, a class of its span, and a CSS colour or the name of one of the page's (--name)
//   setScores(scores)     other scores, one per node; null restores the run's
//   setOrder(positions)   the order of the table until a heading is clicked; nodes that are not named come last
//   refresh()             draw again what decorations, columns and filters depend on

$("title").textContent = data.title;
$("headline").textContent = facts.headline;
$("advice").textContent = facts.advice;
$("guarantee").textContent = `${facts.list} ${facts.guarantee}`;
const share = facts.novel_share;

function showCards() {
  const cards = [[count(counts.listed), `listed, of ${counted(counts.target, "target node")}`]];
  if (share) cards.unshift([share.low > 0 ? `${atLeast(share.low)} to ${percent(share.high)}` : `up to ${percent(share.high)}`, `of the target nodes may be novel. The estimate is ${percent(share.estimate)}.`]);
  if (counts.listed) cards.push([String(groupCount), `${groupCount > 1 ? "groups" : "group"} among them`]);
  if (facts.verdict === "novel") cards.push([`${share.holds_up_to.toFixed(1)} times`, "is how much more frequent a known category would have to be, among the nodes that it is compared with, to explain all of this."]);
  $("cards").append(...cards.map(([figure, caption]) => make("div", { class: "card" }, make("b", {}, figure), caption)));
  $("warnings").hidden = !facts.diagnosis.warnings.length;
  $("warnings").append(...facts.diagnosis.warnings.map((text) => make("p", {}, text)));
  $("inspect-first-section").hidden = !data.inspect_first.length;
  $("inspect-first").append(...data.inspect_first.map(button));
  if (!counts.listed) $("filter").value = "target";
  const notes = [
    ...(counts.shown < counts.nodes ? [`The page has ${count(counts.shown)} of ${counted(counts.nodes, "node")}; scores.csv has all of them.`] : []),
    ...(data.cut_after === null ? [] : [`Texts are cut after ${data.cut_after} characters.`]),
  ];
  $("table-note").hidden = !notes.length;
  $("table-note").textContent = notes.join(" ");
}

const row = (...cells) => make("tr", {}, ...cells.map((cell, c) => make(c ? "td" : "th", c ? {} : { scope: "row" }, String(cell))));
const scrolling = (...children) => make("div", { class: "scroll" }, make("table", {}, ...children));
function showChanges() {
  const diagnosis = facts.diagnosis;
  $("shift").textContent = diagnosis.shift ?? "The shift of known categories is not estimated.";
  $("grown").append(...diagnosis.grown.map((text) => make("li", {}, `${capitalised(text)}.`)));
  $("diagnosis").append(scrolling(make("tbody", {},
    ...facts.check.rows.map(([what, found]) => row(capitalised(what), found)))));
  if (!diagnosis.shift) return;
  const clusters = data.clusters.map((c, k) => row(c.name ?? k + 1, count(c.source), count(c.target), c.known === null ? "" : count(c.known), count(c.listed), c.growth === null ? "" : `${c.growth} ×`));
  $("diagnosis").append(
    make("p", { class: "quiet" }, "A cluster holds similar nodes of both domains (k-means). The number of known target nodes is estimated as twice the number that score below the median of the cluster's source nodes. Growth is how many times as frequent they are in the target as in the source. Both are left out where there are few source nodes."),
    scrolling(
      make("thead", {}, make("tr", {}, ...["cluster", "source", "target", "of these known", "listed", "growth"].map((heading) => make("th", { scope: "col" }, heading)))),
      make("tbody", {}, ...clusters)));
}

function showMaking() {
  const scale = `${counted(counts.nodes, "node")} (${count(counts.source)} source, ${count(counts.target)} target), ${counted(counts.edges, "edge")}, ${counted(counts.features, "feature")}.`;
  const shown = counts.shown < counts.nodes ? ` This page shows ${count(counts.shown)} of the nodes.` : "";
  const software = ` recoslip ${data.run.recoslip}, method ${data.run.method};`;
  const fits = facts.rotations > 1 ? ` ${facts.rotations} fits;` : "";
  const regions = facts.regions > 1 ? ` in ${facts.regions} regions` : "";
  const pValues = `${fits} p-values from ${count(facts.calibration_nodes)} ${facts.calibrated ? "calibration nodes" : "validation source nodes"}${regions}.`;
  const ends = share
    ? `The lower end of the novel share has ${(100 * share.confidence).toFixed(0)} % confidence if no known category is more than ${share.max_growth.toFixed(1)} times as frequent as in the source among the nodes that it is compared with. The upper end assumes that no more novel nodes have p-values above 0.3 than known nodes have below.`
    : "The number of novel nodes is not estimated.";
  const settings = data.run.settings.map(({ name, value, meaning }) => row(name, value, meaning));
  $("made").append(
    make("p", {}, scale + shown + software + pValues),
    make("p", {}, ends),
    make("details", {}, make("summary", {}, "Settings of the method"), make("table", { class: "settings" },
      make("thead", {}, make("tr", {}, ...["setting", "value", "meaning"].map((heading) => make("th", { scope: "col" }, heading)))),
      make("tbody", {}, ...settings))));
}

function refresh() {
  const first = offset;
  select();
  offset = first < rows.length ? first : 0;
  show();
  redecorate();
  redraw();
}
const runScores = nodes.score;
function setScores(scores) {
  nodes.score = scores === null ? runScores : Array.from(scores);
  histogram = scores === null ? data.histogram : histogramOfScores();
  showLevel();
  drawHistogram();
  refresh();
}
function setOrder(wanted) {
  given = wanted && Array(total).fill(total);
  wanted?.forEach((k, place) => { given[k] = place; });
  select();
}
function addFilter(name, predicate) {
  filters[name] = predicate;
  $("filter").append(make("option", { value: name }, name));
}
function addColumn(heading, value, { numeric = false } = {}) {
  columns.push({ heading, value, show: (k) => [String(value(k) ?? "")], numeric, down: numeric });
  show();
}

showGroups();
showCards();
showChanges();
showMaking();
showLevel();
drawHistogram();
drawMap();
showLegend();
select();
window.recoslipReview?.({
  data, nodes, make, open, closeDetail, openNode, announce, setScores, setOrder, refresh, addColumn, addFilter,
  slot: $("review"),
  onDetail: (add) => detailAdditions.push(add),
  onGroup: (add) => groupCards.forEach(([g, container]) => add(g, container)),
  decoration: (shown) => { decoration = shown; refresh(); },
});
document.body.dataset.ready = "yes";
