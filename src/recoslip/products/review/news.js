// The server's answers -> the state of this page; what this person asks for -> requests.

async function get(address) {
  const answer = await fetch(address);
  return checked(answer);
}
async function post(address, body) {
  return checked(await fetch(address, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }));
}
async function checked(answer) {
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.error), { status: answer.status });
  return body;
}
const quietly = (promise) => promise.catch((error) => { if (error.status) say(error.message, true); });

async function listen() {
  for (let wait = 0; ; wait = 20) {
    try {
      const state = await get(`/api/state?since=${last}&wait=${wait}&rankings=${rankings}`);
      problem = null;
      take(state);
      outbox.send();
    } catch (error) {
      problem = error.status === 403 ? text("new_token") : error.status ? error.message : text("no_answer");
      render();
      await sleep(1000);
    }
  }
}
function take(state) {
  const isFirst = !isLoaded;
  isLoaded = true;
  events.push(...state.events.filter((event) => event.seq > last));
  for (const [id, facts] of Object.entries(state.nodes)) decided.nodes.set(id, facts);
  for (const [number, facts] of Object.entries(state.groups)) decided.groups.set(Number(number), facts);
  people = state.people;
  const others = state.events.filter((event) => event.who !== who && event.kind === "verdict");
  if (!isFirst && others.length) say(others.length === 1 ? told(others[0]) : text("colleagues", { times: plural(others.length, "time") }));
  last = state.last;
  if (state.rankings !== rankings) { rankings = state.rankings; if (rankings) quietly(get("/api/scores").then(rerank)); }
  if (state.sampled !== Boolean(sample?.nodes) || state.events.some((event) => sample?.nodes?.includes(event.node))) quietly(readCertificate());
  changed();
  const isTaken = others.some((event) => about(event) === current) && isDecided(current); // a colleague was quicker
  if (current !== null && isSettled(current) && (isFirst || (isTaken && order !== "sample"))) moveOn();
}
function rerank({ scores, rankings: number, moved }) {
  if (!scores) return;
  rankings = number;
  api.setScores(scores);
  say(text("ranked", { people: plural(people.length, "person", "people"), moved }));
  queue = current === null ? [] : [current];
  quietly(fillQueue());
}
async function learn() {
  learnButton.setAttribute("aria-disabled", "true");
  learnButton.textContent = "Learning…";
  try { rerank(await post("/api/learn", {})); } catch (error) { say(error.status ? error.message : text("no_answer"), true); }
  learnButton.removeAttribute("aria-disabled");
  learnButton.textContent = "Learn from these verdicts";
}
async function readCertificate() {
  sample = await get("/api/certificate");
  if (order === "sample") await fillQueue();
  renderCertificate();
  render();
}
async function draw(size) {
  await post("/api/sample", { who, size });
  await readCertificate();
  setOrder("sample");
}
async function importFile(file) {
  const { recorded } = await post("/api/import", { csv: await file.text(), who });
  say(text("imported", { decisions: plural(recorded, "decision") }), true);
}
