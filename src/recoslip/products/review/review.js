// The review on the rest of the report: decorations, a column, a filter, buttons; then everything begins.

const mark = (k) => {
  const found = decision(nodes.id[k]);
  if (!found) return null;
  const name = found.contradiction ? "contradiction" : found.verdict;
  return { symbol: found.contradiction ? "!" : VERDICTS[name].symbol, name, class: name, colour: `room-${name}` };
};
const verdictButtons = (subject, names) => names.map(([verdict, name]) => make("button", { type: "button", class: `room-action ${verdict}`, onclick: () => decide(subject, verdict) }, name));
api.decoration(mark);
api.addColumn("verdict", (k) => mark(k)?.name ?? "", { numeric: false });
api.addFilter("undecided", (k) => nodes.target[k] && nodes.listed[k] && !isDecided(nodes.id[k]));
api.onDetail((k, container) => {
  if (!nodes.target[k]) return;
  container.append(make("div", { class: "room-tools" }, ...verdictButtons(nodes.id[k], [["confirmed", "Confirm"], ["rejected", "Reject"], ["unsure", "Unsure"]]),
    make("button", { type: "button", onclick: () => { show(nodes.id[k]); api.closeDetail(); render(); card.focus(); } }, "Show in the queue"), ...verdictChips(nodes.id[k])));
});
api.onGroup((group, container) => {
  const { number } = group;
  const state = make("p", { class: "room-chips" });
  groupStates.set(number, state);
  container.append(state, make("div", { class: "room-tools" }, ...verdictButtons(number, [["confirmed", "Confirm group"], ["rejected", "Reject: known category that grew"]]),
    make("button", { type: "button", onclick: () => rename(number) }, "Rename"), make("button", { type: "button", onclick: () => note(number) }, "Note")));
});

queue = byScore();
show(data.inspect_first?.length ? nodes.id[data.inspect_first[0]] : queue[0] ?? null);
render();
listen();
quietly(fillQueue());
quietly(readCertificate());
