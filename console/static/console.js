// Keys, the tail, and copying. Every page works without this file, except the tail.
// Texts of messages become text nodes, never HTML.

const ROWS_KEPT = 500; // rows of a tail that stay on the page
const SEQUENCE_MS = 1200; // time between the keys of `g t`

const byKey = {
  o: "/overview",
  t: "/topics",
  g: "/groups",
  b: "/brokers",
  x: "/transactions",
  a: "/users",
};

let pending = 0;

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName));
}

function rows() {
  return [...document.querySelectorAll("[data-rows] > tbody > tr")];
}

function move(step) {
  const all = rows();
  if (all.length === 0) return;
  const now = all.findIndex((row) => row.classList.contains("current"));
  const next = now < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, now + step));
  all[now]?.classList.remove("current");
  const row = all[next];
  row.classList.add("current");
  row.querySelector("th a")?.focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
}

function follow(relation) {
  document.querySelector(`main a[rel="${relation}"]`)?.click();
}

const single = {
  j: () => move(1),
  k: () => move(-1),
  n: () => follow("next"),
  p: () => follow("prev"),
  "/": () => document.querySelector("[data-filter]")?.select(),
  "?": () => document.getElementById("keys").showModal(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (pending && performance.now() - pending < SEQUENCE_MS) {
    pending = 0;
    if (Object.hasOwn(byKey, event.key)) {
      event.preventDefault();
      location.assign(byKey[event.key]);
      return;
    }
  }
  if (event.key === "g") {
    pending = performance.now();
  } else if (Object.hasOwn(single, event.key)) {
    event.preventDefault();
    single[event.key]();
  }
});

// The tail: rows come by server-sent events, and rest while nobody looks.

function startTail(button) {
  const body = document.querySelector("[data-tail-rows] > tbody");
  const template = document.getElementById("tail-row");
  const state = document.querySelector("[data-state]");
  let source = null;
  let left = 0;
  let shown = 0;

  function tell(text) {
    const more = left ? `, ${left.toLocaleString("en")} left out (more than 50 a second)` : "";
    state.textContent = `${text}: ${shown.toLocaleString("en")} new${more}`;
  }

  function add(row) {
    const made = template.content.cloneNode(true);
    for (const field of made.querySelectorAll("[data-field]")) {
      const name = field.dataset.field;
      field.textContent = name === "offset" ? row.offset.toLocaleString("en") : String(row[name]);
      if (name === "offset") field.href = row.url;
    }
    made.firstElementChild.classList.add("new");
    body.prepend(made);
  }

  function open() {
    if (source) return;
    source = new EventSource(button.dataset.tail);
    source.addEventListener("rows", (event) => {
      const found = JSON.parse(event.data);
      document.querySelector("[data-nothing]")?.remove();
      found.rows.forEach(add);
      shown += found.rows.length;
      left += found.left_out;
      while (body.children.length > ROWS_KEPT) body.lastElementChild.remove();
      tell("tail");
    });
    source.addEventListener("failed", (event) => {
      stop();
      state.textContent = JSON.parse(event.data).sentence;
    });
    source.addEventListener("open", () => tell("tail"));
    source.addEventListener("error", () => {
      if (source?.readyState === EventSource.CLOSED) {
        stop();
        state.textContent = "The tail has ended: the console does not answer, or the session is over.";
      }
    });
  }

  function close() {
    source?.close();
    source = null;
  }

  function stop() {
    close();
    button.setAttribute("aria-pressed", "false");
    document.removeEventListener("visibilitychange", look);
  }

  function look() {
    if (document.hidden) {
      close();
      tell("tail rests");
    } else {
      open();
    }
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    if (button.getAttribute("aria-pressed") === "true") {
      stop();
      tell("tail stopped");
      return;
    }
    button.setAttribute("aria-pressed", "true");
    document.addEventListener("visibilitychange", look);
    open();
  });
}

for (const button of document.querySelectorAll("[data-tail]")) startTail(button);

for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.closest("section").querySelector("[data-copy-source]").textContent);
    button.textContent = "Copied";
  });
}
