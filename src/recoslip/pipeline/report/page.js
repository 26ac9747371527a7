// The parts are drawn, and another script may add to them.
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
//   refresh()             draw again what decorations, columns and filters depend on

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
  refresh();
}
function addFilter(name, predicate) {
  filters[name] = predicate;
  $("filter").append(make("option", { value: name }, name));
}
function addColumn(heading, value, { numeric = false } = {}) {
  columns.push({ heading, value, show: (k) => [String(value(k) ?? "")], numeric, down: numeric });
  show();
}

// What is folded is printed, where it belongs to the verdict.
let wasOpen = false;
addEventListener("beforeprint", () => { wasOpen = $("sure").open; $("sure").open = true; });
addEventListener("afterprint", () => { $("sure").open = wasOpen; });

drawMap();
showLegend();
setLevel();
window.recoslipReview?.({
  data, nodes, make, open, closeDetail, openNode, announce, setScores, refresh, addColumn, addFilter,
  slot: $("review"),
  onDetail: (add) => detailAdditions.push(add),
  onGroup: (add) => data.groups.forEach((g) => add(g, document.querySelector(`[data-group="${g.number}"] .added`))),
  decoration: (shown) => { decoration = shown; refresh(); },
});
document.body.dataset.ready = "yes";
