// Keys and questions -> actions.

const dialogs = make("div");
function ask(title, what, value, longest, isLong = false) {
  return new Promise((done) => {
    const field = make(isLong ? "textarea" : "input", { maxlength: longest, rows: 4, id: "review-answer", autocomplete: "off" });
    field.value = value ?? "";
    const finish = (answer) => { dialog.close(); done(answer); };
    const form = make("form", { onsubmit: (e) => { e.preventDefault(); finish(field.value.trim()); } },
      make("h2", { id: "review-asked" }, title), make("label", { for: "review-answer" }, what), field,
      make("p", { class: "review-buttons" }, make("button", { type: "submit", class: "primary" }, "Save"), make("button", { type: "button", onclick: () => finish("") }, "Cancel")));
    field.addEventListener("keydown", (e) => { if (e.key === "Enter" && (!isLong || e.ctrlKey || e.metaKey)) { e.preventDefault(); form.requestSubmit(); } });
    const dialog = make("dialog", { class: "review-dialog", "aria-labelledby": "review-asked", onclose: () => { dialog.remove(); done(""); } }, form);
    (document.querySelector("dialog[open]") ?? dialogs).append(dialog);
    dialog.showModal();
    field.focus();
    field.select();
  });
}
function help() {
  const isOn = make("input", { type: "checkbox", id: "review-keys", onchange: (e) => remember("keys", e.target.checked ? "on" : "off") });
  isOn.checked = keysAreOn();
  const dialog = make("dialog", { class: "review-dialog", "aria-labelledby": "review-help", onclose: () => dialog.remove() },
    make("h2", { id: "review-help" }, "Keys"),
    make("dl", { class: "review-keys" }, ...KEYS.flatMap(([key, what]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, what)])),
    make("p", {}, text("rules")),
    make("p", {}, isOn, " ", make("label", { for: "review-keys" }, "Use single keys")),
    make("p", { class: "review-buttons" }, make("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close")));
  dialogs.append(dialog);
  dialog.showModal();
}
const keysAreOn = () => recall("keys") !== "off";

// Keys
const subjectNow = () => {
  const opened = api.openNode();
  if (opened !== null) return nodes.target[opened] ? nodes.id[opened] : null;
  return onGroup && current !== null && groupOf(current) !== null ? groupOf(current) : current;
};
const ACTIONS = {
  c: () => decide(subjectNow(), "confirmed"),
  r: () => decide(subjectNow(), "rejected"),
  u: () => decide(subjectNow(), "unsure"),
  n: () => note(subjectNow()),
  z: () => undo(),
  j: () => step(1),
  k: () => step(-1),
  g: () => toggleGroup(),
  "?": () => help(),
};
const ARROWS = { ArrowRight: "j", ArrowLeft: "k" };
function toggleGroup() {
  const number = current === null ? null : groupOf(current);
  if (number === null) { say(text("no_group")); return; }
  onGroup = !onGroup;
  const size = data.groups.find((each) => each.number === number)?.size ?? nodes.group.filter((each) => each === number).length;
  say(onGroup ? text("whole_group", { group: groupName(number), nodes: plural(size, "node") }) : text("node_alone"));
  render();
}
addEventListener("keydown", (e) => {
  const key = ARROWS[e.key] ?? e.key;
  const isElsewhere = e.target.closest?.("input, textarea, select, [contenteditable]") || (ARROWS[e.key] && e.target.closest?.("canvas, table, .scroll"));
  if (e.ctrlKey || e.metaKey || e.altKey || isElsewhere || !ACTIONS[key] || !keysAreOn()) return;
  if (document.querySelector("dialog.review-dialog[open]")) return;
  e.preventDefault();
  ACTIONS[key]();
});
