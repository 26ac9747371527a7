// The level that nodes are listed by -> the list, how many of it may be known, and the nodes just below the line.

const ROUNDING = 1e-9; // as recoslip.learning.p_values: equality is common and must survive rounding
const BELOW = 8; // nodes that are shown below the line
const ownLevel = data.level.own;
const byFdr = data.level.by_fdr;
const levels = [...new Set([0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, ownLevel])].sort((a, b) => a - b);
let level = ownLevel;
let list = Uint8Array.from(nodes.listed); // which nodes are listed at the level
let listedCount = counts.listed; // in the whole graph
const levelChanged = []; // functions to call

// The highest p-value that is listed. By Benjamini-Hochberg: the highest with p * m / rank <= level.
function highestListed(wanted) {
  if (!byFdr) return wanted * (1 + ROUNDING);
  let highest = -1;
  let rank = 0;
  data.level.p_values.forEach((p, i) => {
    rank += data.level.counts[i];
    if ((p * counts.target) / rank <= wanted * (1 + ROUNDING)) highest = p;
  });
  return highest;
}

function setLevel(wanted) {
  level = wanted;
  if (level === ownLevel) {
    list = Uint8Array.from(nodes.listed); // what the run listed, by its own rule
    listedCount = counts.listed;
  } else {
    const highest = highestListed(level);
    list = Uint8Array.from(nodes.p_value, (p) => p !== null && p <= highest);
    listedCount = data.level.counts.reduce((sum, number, i) => sum + (data.level.p_values[i] <= highest ? number : 0), 0);
  }
  for (const changed of levelChanged) changed();
}

function levelSentence() {
  const listed = listedCount ? `${count(listedCount)} of ${counted(counts.target, "target node")} ${listedCount === 1 ? "is" : "are"} listed` : `none of the ${counted(counts.target, "target node")} is listed`;
  const start = `At ${levelPercent(level)}, ${listed}.`;
  if (!data.level.guaranteed) return `${start} No statistical guarantee.`;
  const assumption = `assuming known target nodes are distributed as the hidden source nodes`;
  const most = level * counts.target;
  const atMost = most < 10 ? Math.ceil(10 * most - 1e-6) / 10 : Math.ceil(most - 1e-6); // an upper bound is rounded up
  const promised = byFdr
    ? `Expected false-discovery rate ≤ ${levelPercent(level)}, ${assumption}: ${Number((level * listedCount).toFixed(1))} of these ${count(listedCount)}.`
    : `Expected false-positive rate ≤ ${levelPercent(level)}, ${assumption}: at most ${count(atMost)} known nodes.`;
  const measured = data.level.transferred ? " The new nodes took no part in the fit, so the rate is measured and not proven." : "";
  return `${start} ${promised}${measured}`.trim();
}

function levelNote() {
  const what = byFdr ? "The level is a false-discovery rate: the fraction of known nodes on the list." : "The level is a false-positive rate: the fraction of known nodes that are listed.";
  const chosen = data.level.guaranteed && level !== ownLevel ? " The rate holds if the level is chosen before the list is seen." : "";
  const onPage = counts.shown < counts.nodes ? ` The counts are of the whole graph; ${count(list.reduce((sum, one) => sum + one, 0))} of the listed nodes are on this page.` : "";
  return `${what} The verdict and the groups are those of the run's level, ${levelPercent(ownLevel)}.${chosen}${onPage}`;
}

function justBelow() {
  const unlisted = [];
  for (let k = 0; k < total; k++) if (nodes.target[k] && !list[k]) unlisted.push(k);
  return unlisted.sort((a, b) => nodes.p_value[a] - nodes.p_value[b] || nodes.score[b] - nodes.score[a] || a - b).slice(0, BELOW);
}

function showLevel() {
  const slider = $("level");
  slider.value = levels.indexOf(level);
  slider.setAttribute("aria-valuetext", levelPercent(level));
  $("level-value").textContent = levelPercent(level);
  $("level-own").disabled = level === ownLevel;
  $("level-text").textContent = levelSentence();
  $("level-note").textContent = levelNote();
  const below = justBelow();
  $("below-section").hidden = !below.length;
  $("below").replaceChildren(...below.map(button));
}
$("level").max = levels.length - 1;
$("level").addEventListener("input", () => setLevel(levels[Number($("level").value)]));
$("level-own").addEventListener("click", () => { setLevel(ownLevel); $("level").focus(); });
levelChanged.push(showLevel);
