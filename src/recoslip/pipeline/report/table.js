// Nodes -> a table: search, filters, order, pages, and what of it goes into a file or the clipboard.

const ROWS = 25; // on a page of the table
const MAX_USER_COLUMNS = 6; // of the user's columns; the rest is in the details
const hasLabels = Boolean(nodes.label?.some((text, k) => text !== null && text !== nodes.id[k]));
const pText = (k) => (nodes.p_value[k] === null ? "" : nodes.p_value[k].toFixed(4));

// The level that nodes are listed by: the run's own, or another whose list the page came with.
let list = Uint8Array.from(nodes.listed);
function setLevel() {
  const chosen = data.levels[Number($("level").value)];
  list = chosen.own ? Uint8Array.from(nodes.listed) : Uint8Array.from(nodes.p_value, (p) => p !== null && p <= chosen.highest);
  $("level-text").textContent = say("level", { ...chosen, listed: count(chosen.listed) });
  places = null;
  showLegend();
  select();
  redraw();
}

// Each column: heading, value to order by, what is shown, and whether it begins with the highest.
const columns = [
  ...(hasLabels ? [{ heading: data.label_column, value: label, show: nodeButton }] : []),
  { heading: "id", value: (k) => nodes.id[k], show: hasLabels ? (k) => [nodes.id[k]] : nodeButton },
  { heading: "domain", value: (k) => words[domain(k)] },
  { heading: "score", value: (k) => nodes.score[k], show: (k) => [nodes.score[k].toFixed(4)], down: true, numeric: true },
  { heading: "p-value", value: (k) => nodes.p_value[k], show: (k) => [pText(k)], numeric: true },
  { heading: "listed", value: (k) => list[k], show: (k) => [list[k] ? "yes" : ""], down: true },
  { heading: "group", value: (k) => nodes.group[k], show: (k) => (group(k) ? [groupSwatch(nodes.group[k]), group(k)] : []), down: true },
  ...userColumns.filter(([name]) => !hasLabels || name !== data.label_column).slice(0, MAX_USER_COLUMNS).map(([name, values]) => ({
    heading: name, value: (k) => values[k], show: (k) => [written(values[k])], numeric: values.some((value) => typeof value === "number"),
  })),
];
const filters = {
  listed: (k) => list[k], target: (k) => nodes.target[k], source: (k) => !nodes.target[k], all: () => true,
};
let sort = { column: columns.findIndex(({ heading }) => heading === "score"), down: true };
let offset = 0; // of the first row that is shown
let rows = [];

function nodeButton(k) {
  return [...decided(k), make("button", { type: "button", class: "link" }, label(k))];
}

// Everything that a search looks at, of each node.
let haystack = null;
function matches(query) {
  haystack ??= nodes.id.map((id, k) => [id, nodes.label?.[k] ?? "", ...userColumns.map(([, values]) => written(values[k]))].join("\n").toLowerCase());
  return Uint8Array.from(haystack, (text) => text.includes(query));
}

const collator = new Intl.Collator("en", { numeric: true });
const rank = (value) => (value === null || value === undefined ? 2 : typeof value === "string" ? 1 : 0); // what is missing comes last
function compare(a, b) {
  const { value } = columns[sort.column];
  const [u, v] = [value(a), value(b)];
  const [p, q] = [rank(u), rank(v)];
  if (p !== q || p === 2) return p - q || a - b;
  return (sort.down ? -1 : 1) * (p === 1 ? collator.compare(u, v) : u - v) || a - b;
}

function select() {
  const passes = filters[$("filter").value] ?? filters.all;
  const wantedGroup = $("group").value;
  rows = positions((k) => passes(k) && (!wantedGroup || String(nodes.group[k]) === wantedGroup) && (!found || found[k]) && (!selected || selected.has(k)));
  rows.sort(compare);
  offset = 0;
  show();
}

function search(query) {
  const wanted = query.trim().toLowerCase();
  found = wanted ? matches(wanted) : null;
  select();
  redraw();
  if (found) announce(say("found", { nodes: counted(found.reduce((sum, one) => sum + one, 0)) }));
}

const headings = () => columns.map(({ heading, down, numeric }, c) => {
  const chosen = sort.column === c;
  const button = make("button", { type: "button", onclick: () => order(c, Boolean(down)) }, heading + (chosen ? (sort.down ? " ↓" : " ↑") : ""));
  return make("th", { scope: "col", class: numeric ? "number" : "", "aria-sort": chosen ? (sort.down ? "descending" : "ascending") : "none" }, button);
});
function order(c, down) {
  sort = { column: c, down: sort.column === c ? !sort.down : down };
  select();
  $("head").children[c].firstChild.focus();
}

function show() {
  $("head").replaceChildren(...headings());
  $("rows").replaceChildren(...rows.slice(offset, offset + ROWS).map((k) => make("tr", { onclick: () => open(k) },
    ...columns.map((column) => {
      const content = column.show ? column.show(k) : [column.value(k)];
      const text = content.map((part) => part.textContent ?? part).join("");
      const kind = column.numeric ? "number" : column.heading === "listed" && list[k] ? "listed" : "";
      return make("td", { class: kind, ...(text.length > 24 ? { title: text } : {}) }, ...content);
    }))));
  $("count").textContent = `${counted(rows.length)}${selected ? " of the selection" : ""}`;
  showBound();
  $("page").textContent = rows.length ? `${offset + 1} to ${Math.min(offset + ROWS, rows.length)}` : "none";
  $("previous").setAttribute("aria-disabled", offset === 0);
  $("next").setAttribute("aria-disabled", offset + ROWS >= rows.length);
}

// How many of the target nodes in the table are new, at least; of the trees, the one that says most is taken.
function leastNew(chosen) {
  let most = 0;
  for (const tree of data.bound) {
    const held = tree.around.map(() => 0);
    tree.nodes.forEach((k, i) => { if (chosen.has(k)) held[tree.inside[i]]++; });
    const inner = held.map(() => 0); // new nodes of the bins within a bin, together
    let all = 0;
    for (let bin = held.length - 1; bin >= 0; bin--) {
      const own = Math.max(held[bin] - tree.most_known[bin], inner[bin]);
      const around = tree.around[bin];
      if (around < 0) all += own;
      else { held[around] += held[bin]; inner[around] += own; }
    }
    most = Math.max(most, all);
  }
  return most;
}
function showBound() {
  const chosen = new Set(rows.filter((k) => nodes.target[k]));
  const least = leastNew(chosen);
  const sentence = words[least ? "some_are_new" : "none_shown"] && say(least ? "some_are_new" : "none_shown", { number: count(chosen.size), new: count(least) });
  $("bound").textContent = chosen.size ? sentence : "";
}

$("search").addEventListener("input", () => search($("search").value));
$("level").addEventListener("input", setLevel);
for (const id of ["filter", "group"]) $(id).addEventListener("input", select);
$("previous").addEventListener("click", () => { if (offset > 0) { offset -= ROWS; show(); } });
$("next").addEventListener("click", () => { if (offset + ROWS < rows.length) { offset += ROWS; show(); } });

// As results.py's for_spreadsheets: what would be taken for a formula gets an apostrophe in front.
const withinSafe = (text) => text.replaceAll(/([;\t\r\n])(['"=+\-@＝＋－＠])/g, "$1'$2");
const safe = (text) => (/^['=+\-@\t\r\n＝＋－＠]/.test(text) && !/^[-+]?[0-9.]+$/.test(text) ? `'${withinSafe(text)}` : withinSafe(text));
const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
// The columns of scores.csv, where the group is 0 for listed nodes in no group and empty for nodes that are not listed;
// then the user's own. Listed is what is listed at the level that the page is set to.
const EXPORTED = ["id", "domain", "score", "p_value", "listed", "group"];
const exportedNames = [...EXPORTED, ...userColumns.map(([name]) => safe(EXPORTED.includes(name) ? `${name} (table)` : name))];
const exportedValue = (value) => (typeof value === "string" ? safe(value) : value ?? "");
const cells = (k) => [safe(nodes.id[k]), domain(k), nodes.score[k], nodes.p_value[k] ?? "", list[k] ? "true" : "false", nodes.group[k] < 0 ? "" : nodes.group[k], ...userColumns.map(([, values]) => exportedValue(values[k]))];
const exported = () => [exportedNames, ...rows.map(cells)].map((row) => `${row.map((cell) => quoted(String(cell))).join(",")}\n`).join("");
$("export").addEventListener("click", () => {
  const link = make("a", { href: URL.createObjectURL(new Blob([exported()], { type: "text/csv" })), download: "nodes.csv" });
  link.click();
  URL.revokeObjectURL(link.href);
});
