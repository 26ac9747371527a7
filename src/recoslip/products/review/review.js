// The review on the rest of the report: decorations, a column, a filter, buttons; then everything begins.

const mark = (k) => {
  const found = decision(nodes.id[k]);
  if (!found) return null;
  const name = found.contradiction ? "contradiction" : found.verdict;
  return { symbol: found.contradiction ? "!" : VERDICTS[name].symbol, name, class: name, colour: `review-${name}` };
};
const verdictButtons = (subject, names) => names.map(([verdict, name]) => make("button", { type: "button", class: `review-action ${verdict}`, onclick: () => decide(subject, verdict) }, name));
api.decoration(mark);
api.addColumn("verdict", (k) => mark(k)?.name ?? "", { numeric: false });
api.addFilter("undecided", (k) => nodes.target[k] && nodes.listed[k] && !isDecided(nodes.id[k]));
api.onDetail((k, container) => {
  if (!nodes.target[k]) return;
  container.append(make("div", { class: "review-tools" }, ...verdictButtons(nodes.id[k], [["confirmed", "Confirm"], ["rejected", "Reject"], ["unsure", "Unsure"]]),
    make("button", { type: "button", onclick: () => { show(nodes.id[k]); api.closeDetail(); render(); card.focus(); } }, "Show in the queue"), ...verdictChips(nodes.id[k])));
});
api.onGroup((group, container) => {
  const { number } = group;
  const state = make("p", { class: "review-chips" });
  groupStates.set(number, state);
  container.append(state, make("div", { class: "review-tools" }, ...verdictButtons(number, [["confirmed", "Confirm group"], ["rejected", "Reject: known category that grew"]]),
    make("button", { type: "button", onclick: () => rename(number) }, "Rename"), make("button", { type: "button", onclick: () => note(number) }, "Note")));
});

queue = byScore();
show(queue[0] ?? null);
render();
listen();
quietly(fillQueue());
quietly(readCertificate());
