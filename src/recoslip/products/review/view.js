// The state -> what the review shows.

const actionButton = (key, name, hint, kind = "") => make("button", { type: "button", class: `review-action ${kind}`, "aria-keyshortcuts": key, title: hint, onclick: () => ACTIONS[key]() }, name, " ", make("kbd", { "aria-hidden": "true" }, key));
const banner = make("p", { class: "review-banner", role: "status", hidden: "" });
const message = make("p", { class: "review-message", "aria-hidden": "true" });
const progressText = make("p", { class: "review-progress" });
const progressBar = make("progress", { max: 1, value: 0, "aria-label": "Share of listed nodes that are decided" });
const whoLine = make("span", { class: "quiet" });
const card = make("article", { class: "review-card", tabindex: "-1", "aria-label": "The node to decide about" });
const groupButton = actionButton("g", "Whole group", text("hint_group"));
const actions = make("div", { class: "review-actions", role: "group", "aria-label": "Decide" },
  actionButton("c", "Confirm", text("hint_confirm"), "confirmed"), actionButton("r", "Reject", text("hint_reject"), "rejected"), actionButton("u", "Unsure", "Decide later"),
  groupButton, actionButton("n", "Note", "Write a note"), actionButton("z", "Undo", "Undo your last decision"));
const place = make("span", { class: "quiet" });
const steps = make("p", { class: "review-steps" }, place, actionButton("k", "Previous", "Previous node"), actionButton("j", "Next", "Next node"));
const orderChoice = make("select", { id: "review-order", onchange: (e) => setOrder(e.target.value) },
  make("option", { value: "score" }, "listed nodes, by score"), make("option", { value: "teaching" }, "most informative first"), make("option", { value: "sample" }, "sample of the certificate"));
const queueList = make("ol", { class: "review-queue" });
const conflicts = make("div");
const feed = make("div");
const learnButton = make("button", { type: "button", onclick: () => { if (!learnButton.hasAttribute("aria-disabled")) learn(); } }, "Learn from these verdicts");
const fileField = make("input", { type: "file", accept: ".csv,text/csv", id: "review-file", class: "hidden", tabindex: "-1", "aria-hidden": "true", onchange: (e) => { const [file] = e.target.files; if (file) named(() => quietly(importFile(file))); e.target.value = ""; } });
const certificatePanel = make("div", { class: "review-certificate" });
function setOrder(name) {
  order = name;
  orderChoice.value = name;
  queue = [];
  if (name !== "teaching") current = null; // these begin with the first undecided node
  quietly(fillQueue());
}
slot.append(
  make("div", { class: "review-head" }, make("h2", {}, "Decide"), progressText, progressBar,
    make("span", { class: "review-who" }, whoLine, make("button", { type: "button", onclick: () => askName() }, "Change name"), make("button", { type: "button", "aria-keyshortcuts": "?", onclick: help }, "Keys ", make("kbd", { "aria-hidden": "true" }, "?")))),
  banner,
  make("div", { class: "review-desk" },
    make("div", { class: "review-main" }, steps, card, actions, message),
    make("aside", { class: "review-side", "aria-label": "Queue and colleagues" },
      make("h3", {}, make("label", { for: "review-order" }, "Order "), orderChoice), queueList, conflicts, feed)),
  make("div", { class: "review-tools" }, learnButton,
    make("a", { class: "review-button", href: "/api/export.csv", download: "decisions.csv" }, "Export decisions"),
    make("a", { class: "review-button", href: "/api/final.csv", download: "reviewed.csv" }, "Final list"),
    make("button", { type: "button", onclick: () => fileField.click() }, "Import decisions"), fileField),
  certificatePanel, dialogs);
slot.hidden = false;

function say(words, isLoud = false) {
  const said = words.slice(0, 1).toUpperCase() + words.slice(1);
  message.textContent = said;
  message.classList.toggle("loud", isLoud);
  api.announce(said);
}
const told = (event) => text("told", { who: event.who, what: VERDICTS[event.value]?.verb ?? "cleared", subject: subjectName(about(event)) });
const chip = (verdict, words) => make("span", { class: `review-chip ${verdict}` }, words);
const verdictChips = (id) => chipsOf(decision(id), !own(id));
function chipsOf(found, isOfGroup = false) {
  if (!found) return [];
  if (found.contradiction) return [chip("contradiction", `! ${Object.entries(found.by).map(([name, verdict]) => `${name}: ${verdict}`).join(", ")}`)];
  return [chip(found.verdict, `${VERDICTS[found.verdict].symbol} ${found.verdict} by ${Object.keys(found.by).join(", ")}${isOfGroup ? ", with its group" : ""}`)];
}
const nodeButton = (k) => make("button", { type: "button", class: "node", title: nodes.id[k], "data-node": k, onclick: () => api.open(k) }, ...decorated(k), nodes.label?.[k] ?? nodes.id[k]);
const decorated = (k) => { const shown = mark(k); return shown ? [make("span", { class: `decision ${shown.class}`, title: shown.name }, shown.symbol)] : []; };
const row = (tag, ...cells) => make("tr", {}, ...cells.map((cell, c) => make(tag, c ? { class: "number" } : {}, String(cell ?? ""))));

let drawn = null; // what the card shows
function renderCard() {
  place.textContent = queue.includes(current) ? `${queue.indexOf(current) + 1} of ${queue.length} in this queue` : "not in this queue";
  if (current === null) { drawn = null; card.replaceChildren(make("p", {}, text("queue_empty"))); return; }
  const k = position.get(current);
  const number = groupOf(current);
  const waitingNote = unseen(current, "note");
  const notes = [...factsOf(current)?.notes ?? [], ...(waitingNote ? [[who, waitingNote.note]] : [])];
  const shown = JSON.stringify([current, onGroup, decision(current), notes, number && groupName(number), scoreOf(current)]);
  if (shown === drawn) return; // what is folded out stays so
  drawn = shown;
  const content = [
    make("h3", { class: "review-name" }, label(current)),
    ...(nodes.label?.[k] ? [make("p", { class: "review-id quiet" }, current)] : []),
    make("p", { class: "review-chips" }, ...verdictChips(current), ...(k === undefined ? [chip("", "not shown in this report")] : [
      chip("", `score ${scoreOf(current)}`), ...(nodes.p_value[k] === null ? [] : [chip("", `p-value ${Number(nodes.p_value[k]).toPrecision(2)}`)]), chip("", nodes.listed[k] ? "listed" : "not listed")]),
      ...(number === null ? [] : [chip("", groupName(number)), make("button", { type: "button", class: "review-small", onclick: () => rename(number) }, "Rename group")])),
  ];
  if (onGroup) content.push(make("p", { class: "review-whole" }, text("on_group", { group: groupName(number) })));
  for (const [name, words] of notes) content.push(make("blockquote", { class: "review-note" }, make("b", {}, `${name}: `), words));
  if (k !== undefined) content.push(...describe(k));
  card.replaceChildren(...content);
}
function describe(k) {
  const content = [];
  const columns = Object.entries(data.columns ?? {}).filter(([name, values]) => name !== data.label_column && values[k] !== null && values[k] !== "");
  const entries = columns.map(([name, values]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(values[k]))));
  if (data.images) content.push(image(k));
  if (entries.length) content.push(make("dl", { class: "review-columns" }, ...entries.slice(0, ALL_SHOWN)));
  if (entries.length > ALL_SHOWN) content.push(make("details", {}, make("summary", {}, `${entries.length - ALL_SHOWN} more columns`), make("dl", { class: "review-columns" }, ...entries.slice(ALL_SHOWN))));
  const more = data.details[k];
  if (more?.traits?.length) content.push(make("h4", {}, `Why: against the ${more.references} source nodes most like it`),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Why" }, make("table", { class: "traits" }, make("thead", {}, row("th", "feature", "here", "like it")), make("tbody", {}, ...more.traits.slice(0, 5).map((trait) => row("td", trait.feature, trait.here, trait.reference))))));
  if (more) content.push(make("h4", {}, `${plural(more.degree, "neighbour")}, ${more.source_neighbours.toLocaleString("en")} of them source`),
    make("div", { class: "exemplars" }, ...more.neighbours.slice(0, NEIGHBOURS).map(nodeButton)));
  if (position.has(current)) content.push(make("p", {}, make("button", { type: "button", class: "review-small", onclick: () => api.open(k) }, "All details")));
  return content;
}
function image(k) {
  const { rows, columns } = data.images;
  const canvas = make("canvas", { class: "image large", width: columns, height: rows, role: "img", "aria-label": `image of ${label(nodes.id[k])}` });
  const picture = canvas.getContext("2d").createImageData(columns, rows);
  for (let i = 0; i < rows * columns; i++) picture.data.set([...Array(3).fill(255 - pixels[k * rows * columns + i]), 255], 4 * i);
  canvas.getContext("2d").putImageData(picture, 0, 0);
  return canvas;
}
function renderSide() {
  const at = Math.max(0, queue.indexOf(current));
  const start = Math.max(0, Math.min(at - 2, queue.length - 9));
  queueList.setAttribute("start", start + 1);
  queueList.replaceChildren(...queue.slice(start, start + 9).map((id) => {
    const found = decision(id);
    const mark = found?.contradiction ? "!" : found ? VERDICTS[found.verdict].symbol : "";
    return make("li", {}, make("button", { type: "button", class: `review-item ${found?.contradiction ? "contradiction" : found?.verdict ?? ""}`, ...(id === current ? { "aria-current": "true" } : {}), onclick: () => { show(id); render(); } }, make("span", {}, label(id)), ...(mark ? [make("span", { class: "review-mark", "aria-label": found.contradiction ? "contradiction" : found.verdict, role: "img" }, mark)] : [])));
  }));
  const open = [...decided.nodes.keys(), ...decided.groups.keys()].filter((subject) => own(subject)?.contradiction);
  conflicts.replaceChildren(...(open.length ? [make("h3", {}, plural(open.length, "contradiction")), make("ul", { class: "review-list" }, ...open.map(conflict))] : []));
  const told_ = events.filter((event) => event.kind === "verdict" && event.who !== who).slice(-FEED).reverse();
  feed.replaceChildren(...(told_.length ? [make("h3", {}, "Colleagues"), make("ul", { class: "review-list quiet" }, ...told_.map((event) => make("li", {}, told(event))))] : []));
}
function conflict(subject) {
  const by = Object.entries(own(subject).by).map(([name, verdict]) => `${name}: ${verdict}`).join(", ");
  const open = () => { if (typeof subject === "string") show(subject); else document.getElementById("groups-section")?.scrollIntoView(); render(); };
  return make("li", {}, make("button", { type: "button", class: "review-item", onclick: open }, make("span", {}, subjectName(subject))), make("span", { class: "quiet" }, by));
}
const groupStates = new Map(); // number of a group -> the line on its card
function renderGroups() {
  for (const [number, line] of groupStates) {
    const given = unseen(number, "name")?.value || decided.groups.get(number)?.name;
    const notes = (decided.groups.get(number)?.notes ?? []).map(([name, words]) => chip("", `${name}: ${words}`));
    line.replaceChildren(...(given ? [chip("", `called ${given}`)] : []), ...chipsOf(own(number)), ...notes);
  }
}
function renderCertificate() {
  const content = [make("h3", {}, "Certificate")];
  if (sample?.nodes) {
    const done = sample.nodes.filter((id) => own(id)?.verdict && own(id).verdict !== "unsure").length;
    content.push(make("p", {}, sample.sentence),
      make("p", { class: "review-tools" }, make("button", { type: "button", onclick: () => setOrder("sample") }, `Review the sample: ${done} of ${sample.nodes.length} decided`), make("a", { class: "review-button", href: "/certificate.html", target: "_blank", rel: "noopener" }, "Open the certificate")));
  } else if (sample?.proposed) {
    const size = make("input", { type: "number", id: "review-size", min: 1, value: sample.proposed });
    content.push(make("p", { class: "quiet" }, text("certificate")),
      make("p", { class: "review-tools" }, make("label", { for: "review-size" }, "Nodes to draw"), size, make("button", { type: "button", onclick: () => named(() => quietly(draw(Number(size.value)))) }, "Draw the sample")));
  }
  certificatePanel.replaceChildren(...content);
}
function renderProgress() {
  const listed = nodes.id.filter((_, k) => nodes.listed[k]);
  const done = listed.filter(isDecided).length;
  const others = [...decided.nodes.keys()].filter((id) => !nodes.listed[position.get(id)] && isDecided(id)).length;
  const authors = new Set([...people, ...(outbox.size() ? [who] : [])]).size;
  progressText.textContent = `${done.toLocaleString("en")} of ${plural(listed.length, "listed node")} decided${authors ? ` by ${plural(authors, "person", "people")}` : ""}${others ? `, and ${plural(others, "other")}` : ""}`;
  progressBar.value = listed.length ? done / listed.length : 0;
  whoLine.textContent = who ? text("you", { who }) : text("no_name");
}
function renderBanner() {
  const waiting = outbox.size();
  const trouble = outbox.problem() ?? problem;
  banner.hidden = !trouble;
  banner.textContent = trouble ? `${trouble} ${waiting ? text("kept", { decisions: plural(waiting, "decision is", "decisions are") }) : text("go_on")}` : "";
}
let isDue = false;
function render() { // at most once per frame, however many events come
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    const focused = slot.contains(document.activeElement) ? document.activeElement : null;
    groupButton.setAttribute("aria-pressed", String(onGroup));
    groupButton.disabled = current === null || groupOf(current) === null;
    renderBanner();
    renderProgress();
    renderCard();
    renderSide();
    renderGroups();
    if (focused && !focused.isConnected) ([...slot.querySelectorAll("button")].find((each) => each.textContent === focused.textContent) ?? card).focus({ preventScroll: true });
    if (isStale) api.refresh();
    isStale = false;
    slot.dataset.last = last;
    slot.dataset.waiting = outbox.size();
  });
}
