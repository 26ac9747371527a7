// A node -> a dialog with all that is known of it: the table's values, its traits, its neighbours.

const detail = $("detail");
let opened = null;
const detailAdditions = []; // functions of a node and a container at the top
const openNode = () => (detail.open ? opened : null);
const closeDetail = () => detail.close();

function valuesTable(k) {
  const present = userColumns.filter(([, values]) => values[k] !== null);
  if (!present.length) return [];
  return [make("table", { class: "values" }, make("tbody", {}, ...present.map(([name, values]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, written(values[k]))))))];
}
// What a node has of features, what those that it is compared with have, and the source.
const traitTable = (traits) => make("table", { class: "traits" },
  make("thead", {}, make("tr", {}, ...["feature", "here", "most similar", words.source].map((heading) => make("th", { scope: "col" }, heading)))),
  make("tbody", {}, ...traits.map((trait) => make("tr", {}, make("th", { scope: "row" }, trait.feature), ...[trait.here, trait.reference, trait.source].map((text) => make("td", { class: "number" }, text))))));

function open(k) {
  const more = data.details[k];
  opened = k;
  const summary = [
    ...(label(k) === nodes.id[k] ? [] : [nodes.id[k]]), words[domain(k)], `score ${nodes.score[k].toFixed(4)}`,
    ...(nodes.p_value[k] === null ? [] : [`p-value ${pText(k)}`]), ...(list[k] ? ["listed"] : []),
    ...(group(k) ? [groups.get(nodes.group[k])?.name ?? say("group", { number: group(k) })] : []),
  ].join(", ");
  const added = make("div", { class: "added" });
  const content = [
    make("div", { class: "top" }, make("h2", { id: "detail-title" }, label(k)), make("button", { type: "button", onclick: closeDetail }, "Close")),
    added,
    make("p", {}, ...(nodes.group[k] > 0 ? [groupSwatch(nodes.group[k]), " "] : []), summary),
    ...(data.images ? [image(k, "large")] : []),
    ...valuesTable(k),
  ];
  if (more?.evidence !== undefined) content.push(make("p", { class: "evidence" }, data.evidence[more.evidence]));
  if (more?.traits?.length) content.push(make("h3", {}, say("compared", { number: count(more.references) })), traitTable(more.traits));
  if (more) content.push(make("h3", {}, "Neighbours"), make("p", {}, say("neighbours", { number: count(more.degree), others: count(more.source_neighbours) })), make("div", { class: "exemplars" }, ...more.neighbours.map(button)));
  else content.push(make("p", { class: "quiet" }, words.no_neighbours));
  detail.replaceChildren(...content);
  if (!detail.open) detail.showModal();
  for (const add of detailAdditions) add(k, added);
  detail.scrollTop = 0;
  detail.querySelector("button").focus();
  redraw();
}
detail.addEventListener("close", redraw);
