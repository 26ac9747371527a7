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
  const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
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
  $("headline").textContent = data.headline;
  $("rule").textContent = facts.rule;
  const share = facts.novel_share;
  const cards = [
    [`${percent(share.low)} to ${percent(share.high)}`, `of the target may be new; about ${percent(share.estimate)} by the highest scores alone.`],
    [counts.novel.toLocaleString("en"), `of ${counts.target.toLocaleString("en")} target nodes are listed`],
    [facts.categories.structure ? String(facts.categories.count) : "–", facts.categories.structure ? `groups among them, stability ${facts.categories.stability.toFixed(2)}` : "no stable groups among them"],
    [share.breaks_at > 1 ? `${share.breaks_at.toFixed(1)}-fold` : "–", share.breaks_at > 1 ? "If a known kind grew by more than this, it could explain the whole list." : "What is listed may be chance, or a known kind that grew."],
  ];
  $("cards").append(...cards.map(([figure, words]) => make("div", { class: "card" }, make("b", {}, figure), words)));
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

  // Plots
  const layout = (more) => ({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("text"), family: "system-ui, sans-serif" },
    margin: { l: 50, r: 10, t: 10, b: 40 }, legend: { orientation: "h", y: 1.08 }, ...more,
  });
  const config = { responsive: true, displayModeBar: false };
  const PALETTE = ["#c2255c", "#f08c00", "#2f9e44", "#0c8599", "#9c36b5", "#5c940d", "#e8590c", "#1971c2", "#a61e4d", "#087f5b"];

  function drawHistogram() {
    const { edges } = data.histogram;
    const lines = [["source", "source", "solid"], ["held", "source, held back", "dot"], ["target", "target", "solid"]].filter(([key]) => data.histogram[key].some((v) => v)).map(([key, name, dash]) => ({
      type: "scatter", mode: "lines", name, x: edges, y: [...data.histogram[key], 0], line: { shape: "hv", color: colour(key === "held" ? "source" : key === "target" ? "novel" : key), dash, width: 2 },
      hovertemplate: `%{y:.2%} of them from %{x}<extra>${name}</extra>`,
    }));
    const line = { type: "line", x0: data.threshold, x1: data.threshold, yref: "paper", y0: 0, y1: 1, line: { color: colour("text"), dash: "dash", width: 1 } };
    const grid = { gridcolor: colour("line"), zeroline: false };
    Plotly.react("histogram", lines, layout({ shapes: data.threshold <= 1 ? [line] : [], xaxis: { title: { text: "score" }, range: [0, 1], ...grid }, yaxis: { title: { text: "share of them (log)" }, type: "log", tickformat: ".1%", ...grid } }), config);
  }

  function classes() {
    const by = $("colour").value;
    if (by === "domain") return [["source", (k) => !nodes.target[k], colour("source")], ["target", (k) => nodes.target[k], colour("target")]];
    if (by === "group") {
      const named = data.groups.map((g) => [`group ${g.name}`, (k) => nodes.group[k] === g.name, PALETTE[(g.name - 1) % PALETTE.length]]);
      return [["not listed", (k) => !nodes.novel[k], colour("target")], ["in no group", (k) => nodes.group[k] === 0, colour("text")], ...named];
    }
    return [["source", (k) => !nodes.target[k], colour("source")], ["target", (k) => nodes.target[k] && !nodes.novel[k], colour("target")], ["listed", (k) => nodes.novel[k], colour("novel")]];
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
  let before = null; // the theme, while a light page is printed
  addEventListener("beforeprint", () => { before = root.dataset.theme; root.dataset.theme = "light"; draw(); });
  addEventListener("afterprint", () => { if (before) { root.dataset.theme = before; draw(); } });
  draw();
  $("map").on("plotly_click", (event) => open(event.points[0].customdata));
  $("colour").addEventListener("change", drawMap);

  // Groups
  $("groups-section").hidden = !data.groups.length;
  $("groups-note").textContent = facts.categories.structure
    ? "Listed nodes divided by how they are joined, and by features where edges are few. Groups of fewer than five are left out."
    : "The listed nodes do not divide into groups that hold when some are left out, so they are shown as one.";
  const button = (k) => make("button", { type: "button", title: nodes.id[k], onclick: () => open(k) }, data.images ? image(k) : nodes.id[k]);
  const traitRows = (traits) => make("table", {}, make("thead", {}, make("tr", {}, ...["feature", "strength", "here", "usually"].map((t) => make("th", {}, t)))),
    make("tbody", {}, ...traits.map(([name, value, usual, strength]) => make("tr", {}, make("td", { title: name }, name), make("td", {}, strength.toFixed(1)), make("td", {}, String(value)), make("td", {}, String(usual))))));
  for (const g of data.groups) {
    const [inside, novel, target, source] = g.edges;
    $("groups").append(make("article", { class: "group" },
      make("h3", {}, `Group ${g.name}: ${g.size.toLocaleString("en")} nodes`),
      make("div", { class: "exemplars" }, ...g.exemplars.map(button)),
      make("div", { class: "scroll" }, traitRows(g.traits)),
      make("p", { class: "quiet" }, `${inside} edges inside; ${novel} to other listed nodes, ${target} to the rest of the target, ${source} to the source.`)));
    $("group").append(make("option", { value: g.name }, String(g.name)));
  }

  // Table
  const COLUMNS = [["id", (k) => nodes.id[k]], ["domain", domain], ["score", (k) => nodes.score[k]], ["p value", (k) => nodes.p[k]], ["listed", (k) => nodes.novel[k]], ["group", (k) => nodes.group[k]]];
  const PAGE = 25;
  let sort = { column: 2, down: true };
  let first = 0;
  let rows = [];
  if (!counts.novel) $("filter").value = "target";

  function select() {
    const words = $("search").value.trim().toLowerCase();
    const kind = $("filter").value;
    const wanted = $("group").value;
    rows = [];
    for (let k = 0; k < total; k++) {
      if (kind === "novel" && !nodes.novel[k]) continue;
      if (kind === "target" && !nodes.target[k]) continue;
      if (kind === "source" && nodes.target[k]) continue;
      if (wanted && String(nodes.group[k]) !== wanted) continue;
      if (words && !nodes.id[k].toLowerCase().includes(words)) continue;
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
    first = 0;
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
    $("rows").replaceChildren(...rows.slice(first, first + PAGE).map((k) => make("tr", { tabindex: "0", onclick: () => open(k), onkeydown: (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); open(k); } } },
      make("td", { title: nodes.id[k] }, nodes.id[k]), make("td", {}, domain(k)), make("td", {}, nodes.score[k].toFixed(4)),
      make("td", {}, nodes.p[k] === null ? "" : nodes.p[k].toFixed(4)), make("td", { class: nodes.novel[k] ? "novel" : "" }, nodes.novel[k] ? "yes" : ""), make("td", {}, group(k)))));
    $("count").textContent = `${rows.length.toLocaleString("en")} nodes`;
    $("page").textContent = rows.length ? `${first + 1} to ${Math.min(first + PAGE, rows.length)}` : "none";
    $("previous").setAttribute("aria-disabled", first === 0);
    $("next").setAttribute("aria-disabled", first + PAGE >= rows.length);
  }
  for (const id of ["search", "filter", "group"]) $(id).addEventListener("input", select);
  $("previous").addEventListener("click", () => { if (first > 0) { first -= PAGE; show(); } });
  $("next").addEventListener("click", () => { if (first + PAGE < rows.length) { first += PAGE; show(); } });
  // As output.py's for_spreadsheets: a cell that would be taken for a formula gets an apostrophe in front.
  const safe = (text) => (/^['=+\-@\t\r\n＝＋－＠]/.test(text) && !/^[-+]?[0-9.]+$/.test(text) ? `'${text}` : text);
  const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = (separator, write) => [["id", "domain", "score", "p_value", "novel", "category"], ...rows.map((k) =>
    [safe(nodes.id[k]), domain(k), nodes.score[k], nodes.p[k] ?? "", nodes.novel[k] ? "true" : "false", group(k)])].map((row) => row.map((cell) => write(String(cell))).join(separator)).join("\n");
  $("export").addEventListener("click", () => {
    const link = make("a", { href: URL.createObjectURL(new Blob([lines(",", quoted) + "\n"], { type: "text/csv" })), download: "nodes.csv" });
    link.click();
    URL.revokeObjectURL(link.href);
  });
  $("copy").addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(lines("\t", (t) => t.replace(/[\t\n\r]/g, " "))); $("copy").textContent = "Copied"; }
    catch { $("copy").textContent = "Not allowed here"; }
    setTimeout(() => { $("copy").textContent = "Copy"; }, 1500);
  });
  select();

  // Detail
  const detail = $("detail");
  function open(k) {
    const more = data.details[k];
    const facts = `${domain(k)}, score ${nodes.score[k].toFixed(4)}` + (nodes.p[k] === null ? "" : `, p value ${nodes.p[k].toFixed(4)}`) + (nodes.novel[k] ? ", listed" : "") + (group(k) ? `, group ${group(k)}` : "");
    const parts = [make("div", { class: "top" }, make("h2", { id: "detail-title" }, nodes.id[k]), make("button", { type: "button", onclick: () => detail.close() }, "Close")), make("p", {}, facts)];
    if (data.images) parts.push(image(k, true));
    if (more?.traits?.length) parts.push(make("h3", {}, `Against the ${more.like} source nodes most like it`), make("div", { class: "scroll" }, traitRows(more.traits)));
    if (more?.looked) {
      parts.push(make("h3", {}, "What the network looked at"), make("p", {}, more.looked.features.map(([name, weight]) => `${name} (${weight})`).join(", ")));
      if (more.looked.neighbours.length) parts.push(make("p", {}, "Neighbours by weight:"), make("div", { class: "exemplars" }, ...more.looked.neighbours.map(([n]) => button(n))));
    }
    if (more) parts.push(make("h3", {}, "Neighbours"), make("p", {}, `${more.degree} in all, ${more.source} of them source.`), make("div", { class: "exemplars" }, ...more.neighbours.map(button)));
    else parts.push(make("p", { class: "quiet" }, "Neighbours are given for listed nodes and the highest scores only."));
    detail.replaceChildren(...parts);
    if (!detail.open) detail.showModal();
    detail.scrollTop = 0;
    detail.querySelector("button").focus();
  }

  // Diagnosis and settings
  const d = facts.diagnosis;
  $("advice").textContent = d.advice;
  const row = (...cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, String(cell))));
  $("diagnosis").append(make("div", { class: "scroll" }, make("table", {}, make("tbody", {},
    row("Edges stay among nodes with like features", `${d.homophily.toFixed(2)} (1 always, 0 by chance)`),
    row("A linear model tells source from target", `${d.separability.toFixed(2)} AU-ROC (0.5 not at all)`),
    row("Known kinds changed their proportions", `${percent(d.unevenness)} of the source would have to change kind to look like the target`),
    row("The known kind that grew most", `${d.growth.toFixed(1)} times as frequent in the target`)))),
    make("p", { class: "quiet" }, "Kinds are clusters of nodes with like neighbourhoods. Those of which the source has next to none count as new, not as grown."),
    make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...["cluster", "nodes", "of the source", "of the target", "listed", "growth"].map((t) => make("th", {}, t)))),
      make("tbody", {}, ...data.clusters.map(([size, s, t, n, growth], k) => row(k + 1, size, percent(s), percent(t), n, `${growth} ×`))))));
  $("made").append(
    make("p", {}, `${counts.nodes.toLocaleString("en")} nodes (${counts.source.toLocaleString("en")} source, ${counts.target.toLocaleString("en")} target), ${counts.edges.toLocaleString("en")} edges, ${counts.features.toLocaleString("en")} features. recoslip ${data.run.recoslip}, torch ${data.run.torch}, method ${data.run.method}; p values by ${facts.calibration} source nodes.` + (counts.shown < counts.nodes ? ` This page shows ${counts.shown.toLocaleString("en")} of them.` : "")),
    make("p", {}, `${facts.calibrated ? `The lower end of the share holds with 95 % confidence if no known kind grew more than ${share.max_growth.toFixed(1)} times.` : "Nothing is promised of the lower end of the share: no source nodes were held back."} The upper end takes novel nodes to score above 95 % of the known.`),
    make("pre", {}, JSON.stringify(data.run.settings, null, 1)));
  document.body.dataset.ready = "yes";
})();
