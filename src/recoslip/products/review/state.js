// Events of all, and of this browser -> what is decided about a node or a group; what this person decides -> events.

const { data, make, slot } = api;
const { nodes } = data;
const config = JSON.parse(document.getElementById("review-config").textContent);
const position = new Map(nodes.id.map((id, k) => [id, k]));
const groupOf = (id) => { const k = position.get(id); return k !== undefined && nodes.group[k] > 0 ? nodes.group[k] : null; };
const label = (id) => nodes.label?.[position.get(id)] ?? id;
const plural = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const remember = (name, value) => { try { localStorage.setItem(`recoslip.${name}`, value); } catch { /* nothing is kept */ } };
const recall = (name) => { try { return localStorage.getItem(`recoslip.${name}`); } catch { return null; } };

// A sentence, with values in the places that it names.
const text = (name, values = {}) => TEXTS[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);

const pixels = data.images && Uint8Array.from(atob(data.images.pixels), (c) => c.charCodeAt(0));

const VERDICTS = {
  confirmed: { symbol: "✓", done: "Confirmed", verb: "confirmed", key: "c" },
  rejected: { symbol: "✗", done: "Rejected", verb: "rejected", key: "r" },
  unsure: { symbol: "?", done: "Unsure about", verb: "is unsure about", key: "u" },
};
const ALL_SHOWN = 8; // columns of the user's table before the rest is folded
const NEIGHBOURS = 8;
const FEED = 6;
const FEW = 4; // undecided nodes in the queue, below which more are asked for

// What the server says
const decided = { nodes: new Map(), groups: new Map() };
let events = [];
let people = [];
let last = 0; // number of the last event that is known here
let isLoaded = false;
let rankings = 0;
let problem = null; // a sentence while something is wrong
let who = recall("who") ?? config.suggested;

// What this person looks at
let order = "score";
let queue = [];
let current = null;
let isStale = true; // the page shows decisions that changed
let onGroup = false; // the next verdict is on the whole group
let sample = null; // of the certificate: the server's answer

const outbox = makeOutbox({
  run: config.run,
  onchange: () => changed(),
  onrefused: (event, sentence) => say(text("refused", { sentence }), true),
});

// Decisions: what the server knows, and on top of it what this browser has not got acknowledged yet.
const about = (event) => (event.node !== null && event.node !== undefined ? event.node : Number(event.group));
const factsOf = (subject) => (typeof subject === "number" ? decided.groups : decided.nodes).get(subject);
let waiting = new Map(); // kind and subject -> the last event that the state does not hold yet
const waitingName = (kind, subject) => `${kind} ${typeof subject} ${subject}`;
const unseen = (subject, kind) => waiting.get(waitingName(kind, subject));
function changed() {
  const sent = outbox.unseen(last);
  const undone = new Set(sent.filter((event) => event.kind === "undo").map((event) => event.value));
  waiting = new Map(sent.filter((event) => event.kind !== "undo" && !undone.has(event.key)).map((event) => [waitingName(event.kind, about(event)), event]));
  isStale = true;
  render();
}
// { verdict, contradiction, by } of a node or group by itself, or null.
function own(subject) {
  const mine = unseen(subject, "verdict");
  if (mine) return { verdict: mine.value, contradiction: false, by: { [mine.who]: mine.value } };
  const facts = factsOf(subject);
  return facts && Object.keys(facts.by).length ? facts : null;
}
const decision = (id) => own(id) ?? (groupOf(id) === null ? null : own(groupOf(id)));
const isDecided = (id) => Boolean(decision(id)?.verdict);
const isSettled = (id) => isDecided(id) || decision(id)?.contradiction; // nothing to ask about in a queue
const groupName = (number) => {
  const given = unseen(number, "name")?.value || decided.groups.get(number)?.name || data.groups.find((each) => each.number === number)?.name;
  return `Group ${number}${given ? `: ${given}` : ""}`;
};
const subjectName = (subject) => (typeof subject === "number" ? groupName(subject) : label(subject));

function record(fields) {
  const key = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  outbox.add({ key, who, node: null, group: null, value: "", note: "", ...fields });
}
const named = (action) => (who ? action() : askName(action));
const subjectFields = (subject) => (typeof subject === "number" ? { group: subject } : { node: subject });

function decide(subject, verdict) {
  if (subject === null) return;
  named(() => {
    record({ kind: "verdict", value: verdict, ...subjectFields(subject) });
    const done = text("done", { verdict: VERDICTS[verdict].done, subject: typeof subject === "number" ? groupName(subject) : `“${label(subject)}”` });
    onGroup = false;
    if (api.openNode() !== null) api.closeDetail();
    if (subject === current || subject === groupOf(current)) {
      moveOn();
      say(`${done} ${current === null || isSettled(current) ? text("queue_done") : text("next", { node: label(current) })}`);
    } else say(done);
    render();
  });
}
function undo() {
  const undone = new Set([...events, ...outbox.unseen(last)].filter((event) => event.kind === "undo").map((event) => event.value));
  const mine = [...events, ...outbox.unseen(last)].filter((event) => event.who === who && event.kind !== "undo" && !undone.has(event.key)).at(-1);
  if (!mine) { say(text("nothing_to_undo")); return; }
  record({ kind: "undo", value: mine.key });
  const subject = about(mine);
  if (typeof subject === "string") show(subject);
  say(text("undone", { what: mine.kind === "verdict" ? VERDICTS[mine.value]?.verb ?? "cleared" : mine.kind, subject: subjectName(subject) }));
  render();
}
async function note(subject) {
  if (subject === null) return;
  const words = await ask(text("ask_note", { subject: subjectName(subject) }), "Note", "", 2000, true);
  if (words) named(() => { record({ kind: "note", note: words, ...subjectFields(subject) }); say(text("noted")); render(); });
}
async function rename(number) {
  const words = await ask(text("ask_name", { number }), "Name", groupName(number).replace(/^Group \d+:? ?/, ""), 200);
  if (words) named(() => { record({ kind: "name", value: words, group: number }); say(text("called", { number, name: words })); render(); });
}
async function askName(action = () => {}) {
  const words = await ask(text("ask_who"), "Your name", who, 80);
  if (!words) return;
  who = words.replace(/\s+/g, " ");
  remember("who", who);
  render();
  action();
}
