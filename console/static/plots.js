// The plots of the overview: uPlot in place of the pictures that the page has, with new values while it is seen.

const REFRESH_MS = 10_000;
const HEIGHT = 140;
const LINES = ["--accent", "--good"];

const texts = {
  bytes: (value) => `${short(value, ["B", "kB", "MB", "GB", "TB"])}/s`,
  count: (value) => `${short(value, ["", "k", "M", "G"])}/s`,
  ms: (value) => `${value.toLocaleString("en", { maximumSignificantDigits: 3 })} ms`,
  part: (value) => `${(100 * value).toFixed(0)} %`,
};

function short(value, units) {
  let place = 0;
  while (Math.abs(value) >= 1000 && place + 1 < units.length) {
    value /= 1000;
    place += 1;
  }
  const text = value.toLocaleString("en", { maximumSignificantDigits: 3 });
  return units[place] ? `${text} ${units[place]}` : text;
}

function color(name) {
  // A canvas knows no light-dark(): the style of an element does.
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function draw(element) {
  const text = texts[element.dataset.unit];
  const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
  const options = {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, sync: { key: "overview" } },
    scales: { y: { range: (_, low, high) => (element.dataset.unit === "part" ? [0, 1] : [0, high > 0 ? high * 1.1 : 1]) } },
    axes: [
      { ...axis, size: 30, values: (_, times) => times.map((at) => new Date(1000 * at).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })) },
      { ...axis, size: 74, values: (_, values) => values.map((value) => (value === null ? "" : text(value))) },
    ],
    series: [{}, ...JSON.parse(element.dataset.labels).map((label, at) => ({ label, stroke: color(LINES[at]), width: 1.5 }))],
  };
  const data = JSON.parse(element.dataset.series);
  const picture = element.querySelector("svg");
  const plot = new uPlot(options, data, element);
  plot.root.setAttribute("aria-hidden", "true");
  // The picture stays for those who do not see the canvas.
  picture.classList.add("visually-hidden");
  return plot;
}

const box = document.querySelector("[data-plots]");

function start() {
  const elements = [...box.querySelectorAll("[data-plot]")];
  let plots = new Map(elements.map((element) => [element.dataset.plot, draw(element)]));

  new ResizeObserver(() => {
    for (const element of elements) plots.get(element.dataset.plot).setSize({ width: element.clientWidth, height: HEIGHT });
  }).observe(box);

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => location.reload());

  setInterval(async () => {
    if (document.hidden) return;
    const response = await fetch(box.dataset.plots).catch(() => null);
    if (!response?.ok || !response.headers.get("content-type").startsWith("application/json")) return;
    for (const [name, data] of Object.entries(await response.json())) plots.get(name)?.setData(data);
  }, REFRESH_MS);
}

if (box) {
  if (document.readyState === "complete") start();
  else addEventListener("load", start);
}
