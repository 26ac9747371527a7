// Events of this browser -> the server, each once: what is not acknowledged is kept here and sent again.

function makeOutbox({ run, onchange, onrefused }) {
  const prefix = `recoslip.${run}.event.`;
  const RETRY = 1000; // milliseconds
  const kept = new Map(); // name in the storage -> event; other tabs have their own
  let latest = 0; // time in the last name
  const answered = []; // acknowledged, but not seen in the state yet: { event, seq }
  let isSending = false;
  let problem = null;

  // Where a browser keeps nothing, events live as long as the page.
  const storage = (use) => { try { return use(localStorage); } catch { return null; } };

  storage((own) => {
    for (const name of Object.keys(own).filter((each) => each.startsWith(prefix)).sort()) {
      kept.set(name, JSON.parse(own.getItem(name)));
      latest = Number(name.slice(prefix.length).split(".")[0]);
    }
  });

  function add(event) {
    latest = Math.max(Date.now(), latest + 1); // names sort in the order of the events, whatever the clock does
    const name = `${prefix}${String(latest).padStart(15, "0")}.${event.key}`;
    kept.set(name, event);
    storage((own) => own.setItem(name, JSON.stringify(event)));
    onchange();
    send();
  }
  function remove(name) {
    kept.delete(name);
    storage((own) => own.removeItem(name));
  }

  async function send() {
    if (isSending) return;
    isSending = true;
    while (kept.size && await sendFirst());
    isSending = false;
    onchange();
    if (kept.size) setTimeout(send, RETRY);
  }
  // Returns whether to go on with the next one.
  async function sendFirst() {
    const [name, event] = kept.entries().next().value;
    let answer;
    try {
      answer = await fetch("/api/events", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ events: [event] }) });
      const body = await answer.json();
      if (answer.ok) {
        answered.push({ event, seq: body.events[0].seq });
        problem = null;
      } else if (answer.status >= 500 || answer.status === 403) {
        problem = body.error;
        return false;
      } else onrefused(event, body.error);
    } catch {
      problem = null; // no answer: the banner says that the server is gone
      return false;
    }
    remove(name);
    onchange();
    return true;
  }

  return {
    add,
    send,
    size: () => kept.size,
    problem: () => problem,
    // The events that the state up to number `last` does not hold yet, in their order.
    unseen: (last) => [...answered.filter(({ seq }) => seq > last).map(({ event }) => event), ...kept.values()],
  };
}
