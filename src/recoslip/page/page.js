"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const nodes = data.nodes;
  const total = nodes.id.length;
  const $ = (id) => document.getElementById(id);

  // Every string of the data goes through here and becomes text, never markup.
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "class") element.className = value;
      else element.setAttribute(name, value);
    }
    for (const child of children) element.append(child);
    return element;
  }
  const escaped = (text) => text.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);
  const percent = (fraction) => `${(100 * fraction).toFixed(fraction < 0.1 ? 1 : 0)} %`;
  const atLeast = (bound) => percent(bound < 0.1 ? Math.floor(1000 * bound + 1e-9) / 1000 : Math.floor(100 * bound + 1e-9) / 100); // a lower bound is rounded down
  const count = (number) => number.toLocaleString("en");
  // A node is referred to by its position k in the arrays of `nodes`.
  const domain = (k) => (nodes.target[k] ? "target" : "source");
  const group = (k) => (nodes.group[k] > 0 ? String(nodes.group[k]) : "");

  // Theme
  const root = document.documentElement;
  root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  $("theme").addEventListener("click", () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    draw();
  });
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  // Words
  const { facts, counts } = data;
  $("title").textContent = data.title;
  $("headline").textContent = facts.headline;
  $("advice").textContent = facts.advice;
  $("promise").textContent = `${facts.list} ${facts.promise}`;
  const share = facts.novel_share;
  const { has_structure: hasStructure, count: groupCount, stability } = facts.groups;
  const cards = [[count(counts.listed), `listed, of ${count(counts.target)} target nodes`]];
  if (share) cards.unshift([share.low > 0 ? `${atLeast(share.low)} to ${percent(share.high)}` : `up to ${percent(share.high)}`, `of the target nodes may be novel; the estimate is ${percent(share.estimate)}.`]);
  if (counts.listed) cards.push(hasStructure ? [String(groupCount), `groups among them, stability ${stability.toFixed(2)}`] : ["1", "group among them"]);
  if (facts.verdict === "new") cards.push([`${share.breaks_at.toFixed(1)} times`, "as frequent as before, among the nodes that it is compared with: so much a known category would have to be, for nothing to be novel."]);
  $("cards").append(...cards.map(([figure, caption]) => make("div", { class: "card" }, make("b", {}, figure), caption)));
  if (facts.diagnosis.warnings.length) {
    $("warnings").hidden = false;
    $("warnings").append(...facts.diagnosis.warnings.map((text) => make("p", {}, text)));
  }

  // Images
  const pixels = data.images && Uint8Array.from(atob(data.images.pixels), (c) => c.charCodeAt(0));
  function image(k, large = false) {
    const { rows, columns } = data.images;
    const canvas = make("canvas", { class: large ? "image large" : "image", width: columns, height: rows, role: "img", "aria-label": `image of ${nodes.id[k]}` });
    const context = canvas.getContext("2d");
    const picture = context.createImageData(columns, rows);
    for (let i = 0; i < rows * columns; i++) {
      const value = 255 - pixels[k * rows * columns + i];
      picture.data.set([value, value, value, 255], 4 * i);
    }
    context.putImageData(picture, 0, 0);
    return canvas;
  }

  const button = (k) => make("button", { type: "button", title: nodes.id[k], onclick: () => open(k) }, data.images ? image(k) : nodes.id[k]);
  $("first-look-section").hidden = !data.first_look.length;
  $("first-look").append(...data.first_look.map(button));

  // Plots
  const layout = (more) => ({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("text"), family: "system-ui, sans-serif" },
    margin: { l: 50, r: 10, t: 10, b: 40 }, legend: { orientation: "h", y: 1.08 }, ...more,
  });
  const config = { responsive: true, displayModeBar: false };
  const PALETTE = ["#c2255c", "#f08c00", "#2f9e44", "#0c8599", "#9c36b5", "#5c940d", "#e8590c", "#1971c2", "#a61e4d", "#087f5b"];

  function drawHistogram() {
    const histogram = data.histogram;
    const series = [["source", "source", "solid"], ["calibration", "source", "dot"], ["target", "listed", "solid"]]; // name, colour, dash
    const lines = series.filter(([name]) => histogram[name].some((fraction) => fraction)).map(([name, shade, dash]) => ({
      type: "scatter", mode: "lines", name, x: histogram.bin_edges, y: [...histogram[name], 0], line: { shape: "hv", color: colour(shade), dash, width: 2 },
      hovertemplate: `%{y:.2%} of them from %{x}<extra>${name}</extra>`,
    }));
    const threshold = { type: "line", x0: data.threshold, x1: data.threshold, yref: "paper", y0: 0, y1: 1, line: { color: colour("text"), dash: "dash", width: 1 } };
    const axis = { gridcolor: colour("line"), zeroline: false, automargin: true };
    Plotly.react("histogram", lines, layout({ shapes: data.threshold <= 1 ? [threshold] : [], xaxis: { title: { text: "score" }, range: [0, 1], ...axis }, yaxis: { title: { text: "fraction (log)", standoff: 12 }, type: "log", tickformat: ".1%", ...axis } }), config);
  }

  // What the map colours apart: name, which nodes, colour.
  function classes() {
    const by = $("colour").value;
    if (by === "domain") return [["source", (k) => !nodes.target[k], colour("source")], ["target", (k) => nodes.target[k], colour("target")]];
    if (by === "group") {
      const groups = data.groups.map((g) => [`group ${g.number}`, (k) => nodes.group[k] === g.number, PALETTE[(g.number - 1) % PALETTE.length]]);
      return [["not listed", (k) => !nodes.listed[k], colour("target")], ["in no group", (k) => nodes.group[k] === 0, colour("text")], ...groups];
    }
    return [["source", (k) => !nodes.target[k], colour("source")], ["target", (k) => nodes.target[k] && !nodes.listed[k], colour("target")], ["listed", (k) => nodes.listed[k], colour("listed")]];
  }

  function trace(name, index, marker) {
    return {
      type: "scattergl", mode: "markers", name, x: index.map((k) => nodes.x[k]), y: index.map((k) => nodes.y[k]), customdata: index,
      text: index.map((k) => escaped(nodes.id[k].slice(0, 80))), hovertemplate: "%{text}<extra></extra>",
      marker: { size: total > 10000 ? 4 : 6, opacity: 0.75, ...marker },
    };
  }

  function drawMap() {
    const every = Array.from({ length: total }, (_, k) => k);
    const traces = $("colour").value === "score"
      ? [trace("nodes", every, { color: nodes.score, colorscale: "Viridis", showscale: true, colorbar: { title: { text: "score" } } })]
      : classes().map(([name, belongs, shade]) => trace(name, every.filter(belongs), { color: shade })).filter((t) => t.x.length);
    const bare = { showgrid: false, zeroline: false, showticklabels: false };
    Plotly.react("map", traces, layout({ xaxis: bare, yaxis: { ...bare, scaleanchor: "x" }, hovermode: "closest", margin: { l: 5, r: 5, t: 10, b: 5 } }), config);
  }
  function draw() { drawHistogram(); drawMap(); }
  let screenTheme = null; // while a light page is printed
  addEventListener("beforeprint", () => { screenTheme = root.dataset.theme; root.dataset.theme = "light"; draw(); });
  addEventListener("afterprint", () => { if (screenTheme) { root.dataset.theme = screenTheme; draw(); } });
  draw();
  $("map").on("plotly_click", (event) => open(event.points[0].customdata));
  $("colour").addEventListener("change", drawMap);

  // Groups
  $("groups-section").hidden = !data.groups.length;
  $("groups-note").textContent = (hasStructure
    ? "Communities of the listed nodes, by their edges and, where those are few, by their features. Those that are more like each other than like any cluster of the source are one group; those of fewer than five nodes are left out."
    : "The listed nodes are shown as one group: they are few, or no division of them is found again when some are left out, or its parts are more like each other than like any cluster of the source, or none was tried.")
    + (data.groups.some((g) => g.evidence) ? " The groups with the most evidence of being new come first." : "")
    + " Features are compared with the source.";
  const traitTable = (traits) => make("div", { class: "scroll" }, make("table", { class: "traits" },
    make("thead", {}, make("tr", {}, ...["feature", "strength", "here", "source"].map((heading) => make("th", {}, heading)))),
    make("tbody", {}, ...traits.map((trait) => make("tr", {}, make("td", { title: trait.feature }, trait.feature), make("td", {}, trait.strength.toFixed(1)), make("td", {}, String(trait.mean)), make("td", {}, String(trait.reference)))))));
  for (const g of data.groups) {
    $("groups").append(make("article", { class: "group" },
      make("h3", {}, `Group ${g.number}${g.name ? `: ${g.name}` : ""} (${count(g.size)} ${g.size === 1 ? "node" : "nodes"})`),
      ...(g.evidence ? [make("p", { class: "evidence" }, g.evidence)] : []),
      make("div", { class: "exemplars" }, ...g.exemplars.map(button)),
      traitTable(g.traits),
      make("p", { class: "quiet" }, `Edges: ${count(g.internal_edges)} inside, ${count(g.edges_to_listed)} to other listed nodes, ${count(g.edges_to_target)} to the rest of the target, ${count(g.edges_to_source)} to the source.`)));
    $("group").append(make("option", { value: g.number }, String(g.number)));
  }

  // Table
  const COLUMNS = [["id", (k) => nodes.id[k]], ["domain", domain], ["score", (k) => nodes.score[k]], ["p-value", (k) => nodes.p_value[k]], ["listed", (k) => nodes.listed[k]], ["group", (k) => nodes.group[k]]];
  const ROWS = 25; // on a page of the table
  let sort = { column: 2, down: true };
  let offset = 0; // of the first row that is shown
  let rows = [];
  if (!counts.listed) $("filter").value = "target";

  function select() {
    const query = $("search").value.trim().toLowerCase();
    const filter = $("filter").value;
    const wantedGroup = $("group").value;
    rows = [];
    for (let k = 0; k < total; k++) {
      if (filter === "listed" && !nodes.listed[k]) continue;
      if (filter === "target" && !nodes.target[k]) continue;
      if (filter === "source" && nodes.target[k]) continue;
      if (wantedGroup && String(nodes.group[k]) !== wantedGroup) continue;
      if (query && !nodes.id[k].toLowerCase().includes(query)) continue;
      rows.push(k);
    }
    const value = COLUMNS[sort.column][1];
    const sign = sort.down ? -1 : 1;
    const numeric = new Intl.Collator("en", { numeric: true });
    rows.sort((a, b) => {
      const [u, v] = [value(a), value(b)];
      if (u === null || v === null) return (u === null) - (v === null);
      return sign * (typeof u === "string" ? numeric.compare(u, v) : u - v) || a - b;
    });
    offset = 0;
    show();
  }
  const headings = COLUMNS.map(([name], c) => make("button", { type: "button", onclick: () => { sort = { column: c, down: sort.column === c ? !sort.down : c > 1 && c !== 3 }; select(); } }, name));
  $("head").append(...headings.map((heading) => make("th", {}, heading)));
  function show() {
    headings.forEach((heading, c) => {
      const chosen = sort.column === c;
      heading.textContent = COLUMNS[c][0] + (chosen ? (sort.down ? " ↓" : " ↑") : "");
      heading.parentElement.setAttribute("aria-sort", chosen ? (sort.down ? "descending" : "ascending") : "none");
    });
    $("rows").replaceChildren(...rows.slice(offset, offset + ROWS).map((k) => make("tr", { tabindex: "0", onclick: () => open(k), onkeydown: (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); open(k); } } },
      make("td", { title: nodes.id[k] }, nodes.id[k]), make("td", {}, domain(k)), make("td", {}, nodes.score[k].toFixed(4)),
      make("td", {}, nodes.p_value[k] === null ? "" : nodes.p_value[k].toFixed(4)), make("td", { class: nodes.listed[k] ? "listed" : "" }, nodes.listed[k] ? "yes" : ""), make("td", {}, group(k)))));
    $("count").textContent = `${count(rows.length)} nodes`;
    $("page").textContent = rows.length ? `${offset + 1} to ${Math.min(offset + ROWS, rows.length)}` : "none";
    $("previous").setAttribute("aria-disabled", offset === 0);
    $("next").setAttribute("aria-disabled", offset + ROWS >= rows.length);
  }
  for (const id of ["search", "filter", "group"]) $(id).addEventListener("input", select);
  $("previous").addEventListener("click", () => { if (offset > 0) { offset -= ROWS; show(); } });
  $("next").addEventListener("click", () => { if (offset + ROWS < rows.length) { offset += ROWS; show(); } });
  // As output.py's for_spreadsheets: a cell that would be taken for a formula gets an apostrophe in front.
  const safe = (text) => (/^['=+\-@\t\r\n＝＋－＠]/.test(text) && !/^[-+]?[0-9.]+$/.test(text) ? `'${text}` : text);
  const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  // The columns of scores.csv, where the group is 0 for listed nodes in no group and empty for nodes that are not listed.
  const EXPORTED = ["id", "domain", "score", "p_value", "listed", "group"];
  const cells = (k) => [safe(nodes.id[k]), domain(k), nodes.score[k], nodes.p_value[k] ?? "", nodes.listed[k] ? "true" : "false", nodes.group[k] < 0 ? "" : nodes.group[k]];
  const exported = (separator, write) => [EXPORTED, ...rows.map(cells)].map((row) => row.map((cell) => write(String(cell))).join(separator)).join("\n");
  $("export").addEventListener("click", () => {
    const link = make("a", { href: URL.createObjectURL(new Blob([exported(",", quoted) + "\n"], { type: "text/csv" })), download: "nodes.csv" });
    link.click();
    URL.revokeObjectURL(link.href);
  });
  $("copy").addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(exported("\t", (text) => text.replace(/[\t\n\r]/g, " "))); $("copy").textContent = "Copied"; }
    catch { $("copy").textContent = "Not allowed here"; }
    setTimeout(() => { $("copy").textContent = "Copy"; }, 1500);
  });
  select();

  // Detail
  const detail = $("detail");
  function open(k) {
    const more = data.details[k];
    const summary = `${domain(k)}, score ${nodes.score[k].toFixed(4)}` + (nodes.p_value[k] === null ? "" : `, p-value ${nodes.p_value[k].toFixed(4)}`) + (nodes.listed[k] ? ", listed" : "") + (group(k) ? `, group ${group(k)}` : "");
    const content = [make("div", { class: "top" }, make("h2", { id: "detail-title" }, nodes.id[k]), make("button", { type: "button", onclick: () => detail.close() }, "Close")), make("p", {}, summary)];
    if (data.images) content.push(image(k, true));
    if (more?.traits?.length) content.push(make("h3", {}, `Against the ${more.references} source nodes most like it`), traitTable(more.traits));
    if (more?.explanation) {
      const { features, neighbours } = more.explanation;
      content.push(make("h3", {}, "What the score rests on (GNNExplainer)"), make("p", {}, `Features by weight: ${features.map(({ feature, weight }) => `${feature} (${weight})`).join(", ")}`));
      if (neighbours.length) content.push(make("p", {}, "Neighbours by weight:"), make("div", { class: "exemplars" }, ...neighbours.map(({ node }) => button(node))));
    }
    if (more) content.push(make("h3", {}, "Neighbours"), make("p", {}, `${count(more.degree)} in all, ${count(more.source_neighbours)} of them source.`), make("div", { class: "exemplars" }, ...more.neighbours.map(button)));
    else content.push(make("p", { class: "quiet" }, "Neighbours are given for listed nodes and the highest scores only."));
    detail.replaceChildren(...content);
    if (!detail.open) detail.showModal();
    detail.scrollTop = 0;
    detail.querySelector("button").focus();
  }

  // Diagnosis and settings
  const diagnosis = facts.diagnosis;
  $("shift").textContent = diagnosis.shift ?? "How far proportions shifted is not estimated.";
  $("grown").append(...diagnosis.grown.map((text) => make("li", {}, `${text[0].toUpperCase()}${text.slice(1)}.`)));
  const row = (...cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, String(cell))));
  const clusterRows = data.clusters.map((c, k) => row(c.name ?? k + 1, count(c.source), count(c.target), c.known === null ? "" : count(c.known), count(c.listed), c.growth === null ? "" : `${c.growth} ×`));
  $("diagnosis").append(
    make("div", { class: "scroll" }, make("table", {}, make("tbody", {},
      row("Edges join nodes with similar features", `${diagnosis.homophily.toFixed(2)} (1 always, 0 as by chance)`),
      ...facts.look.rows.map(([what, found]) => row(`${what[0].toUpperCase()}${what.slice(1)}`, found))))));
  if (diagnosis.shift) $("diagnosis").append(
    make("p", { class: "quiet" }, "Clusters hold nodes of both domains that are like each other (k-means). Known are, about, twice the target nodes that score below the median of the cluster's source nodes. Growth says how many times as frequent these are in the target as in the source; both are left out where there are few source nodes."),
    make("div", { class: "scroll" }, make("table", {},
      make("thead", {}, make("tr", {}, ...["cluster", "source", "target", "of these known", "listed", "growth"].map((heading) => make("th", {}, heading)))),
      make("tbody", {}, ...clusterRows))));
  const scale = `${count(counts.nodes)} nodes (${count(counts.source)} source, ${count(counts.target)} target), ${count(counts.edges)} edges, ${count(counts.features)} features.`;
  const shown = counts.shown < counts.nodes ? ` This page shows ${count(counts.shown)} of the nodes.` : "";
  const software = ` recoslip ${data.run.recoslip}, torch ${data.run.torch}, method ${data.run.method};`;
  const fits = facts.rotations > 1 ? ` ${facts.rotations} fits;` : "";
  const regions = facts.regions > 1 ? ` in ${facts.regions} regions` : "";
  const pValues = `${fits} p-values from ${count(facts.calibration_nodes)} ${facts.calibrated ? "calibration nodes" : "validation source nodes"}${regions}.`;
  const ends = share
    ? `The lower end of the novel share holds with ${(100 * share.confidence).toFixed(0)} % confidence if no known category is more than ${share.max_growth.toFixed(1)} times as frequent as before among the nodes that it is compared with. The upper end holds if no more novel nodes have p-values above 0.3 than known nodes have below.`
    : "How many nodes are novel is not estimated.";
  $("made").append(
    make("p", {}, scale + shown + software + pValues),
    make("p", {}, ends),
    make("pre", {}, JSON.stringify(data.run.settings, null, 1)));
  document.body.dataset.ready = "yes";
})();
