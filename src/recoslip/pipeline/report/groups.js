// Groups of the listed nodes -> cards.

const MEMBERS = data.images ? 12 : 6; // shown on a card
const groupCards = []; // [group, container for what others add to its card]
const { has_structure: hasStructure, count: groupCount } = facts.groups;

// What nodes have of features, what those that they are compared with have, and the source.
const traitTable = (traits, compared) => make("table", { class: "traits" },
  make("thead", {}, make("tr", {}, ...["feature", "here", compared, "source"].map((heading) => make("th", { scope: "col" }, heading)))),
  make("tbody", {}, ...traits.map((trait) => make("tr", {}, make("th", { scope: "row" }, trait.feature), ...[trait.here, trait.reference, trait.source].map((text) => make("td", { class: "number" }, text))))));

function groupCard(g) {
  const added = make("div", { class: "added" });
  groupCards.push([g, added]);
  return make("article", { class: `group edge-${hue(g.number)}`, "data-group": g.number },
    make("h4", {}, groupSwatch(g.number), ` Group ${g.number}${g.name ? `: ${g.name}` : ""} (${counted(g.size, "node")})`),
    added,
    ...(g.evidence ? [make("p", { class: "evidence" }, g.evidence)] : []),
    make("div", { class: "exemplars" }, ...g.exemplars.slice(0, MEMBERS).map(button)),
    ...(g.traits.length ? [make("p", { class: "quiet" }, `Compared with the ${counted(g.references, "source node")} most similar to them:`), traitTable(g.traits, "most similar")] : []),
    make("p", { class: "quiet" }, `Edges: ${count(g.internal_edges)} inside, ${count(g.edges_to_listed)} to other listed nodes, ${count(g.edges_to_target)} to the rest of the target, ${count(g.edges_to_source)} to the source.`));
}

function showGroups() {
  $("groups-section").hidden = !data.groups.length;
  $("groups-note").textContent = (hasStructure
    ? "Groups are communities of the listed nodes, by edges and, where those are few, by features. Communities that are more similar to each other than to any cluster of the source are merged. Communities of fewer than five nodes are left out."
    : "The listed nodes are shown as one group: they are few, no division is stable when some are left out, its parts are more similar to each other than to any cluster of the source, or none was tried.")
    + (data.groups.some((g) => g.evidence) ? " Groups with the most evidence come first." : "")
    + " For a number the table gives the mean, for a category or a word the share of the nodes that have it.";
  $("groups").append(...data.groups.map(groupCard));
  $("group").append(...data.groups.map((g) => make("option", { value: g.number }, String(g.number))));
}
