// An order -> the nodes to decide about, one after the other.

const byScore = () => {
  const listed = nodes.id.filter((id, k) => nodes.target[k] && (nodes.listed[k] || !data.counts.listed));
  return listed.sort((a, b) => nodes.score[position.get(b)] - nodes.score[position.get(a)]);
};
async function fillQueue() {
  if (order === "score") queue = byScore();
  else if (order === "sample") queue = sample?.nodes ?? [];
  else {
    const { nodes: found } = await get(`/api/queue?count=8`);
    const seen = queue.slice(0, Math.max(0, queue.indexOf(current)) + 1);
    if (order === "teaching") queue = [...seen, ...found.filter((id) => !seen.includes(id))];
  }
  if (current === null || !queue.includes(current)) show(queue.find((id) => !isSettled(id)) ?? queue[0] ?? null);
  render();
}
function show(id) {
  current = id;
  onGroup = false;
}
function step(by) {
  if (!queue.length) return;
  show(queue[(queue.indexOf(current) + by + queue.length) % queue.length]);
  say(`${label(current)}, score ${scoreOf(current)}${decision(current)?.verdict ? `, ${decision(current).verdict}` : ""}.`);
  render();
  card.focus({ preventScroll: true });
}
function moveOn() {
  const start = queue.indexOf(current);
  const rest = [...queue.slice(start + 1), ...queue.slice(0, Math.max(0, start))].filter((id) => !isSettled(id));
  if (rest.length) show(rest[0]);
  if (rest.length < FEW && order === "teaching") quietly(fillQueue());
}
const scoreOf = (id) => (position.has(id) ? nodes.score[position.get(id)].toFixed(3) : "unknown");
