"use strict";
// The page works without this script, but for its plots, filters and exports.

const figures = JSON.parse(document.getElementById("figures").textContent);
const figureOf = (plot) => figures[plot.dataset.entry].find((one) => one.name === plot.dataset.name);
const plots = () => [...document.querySelectorAll(".plot")];

// plotly reads markup in every text; texts of logs are only texts. Templates of hover labels are our own.
const literally = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function resolved(value, key) {
  if (Array.isArray(value)) return value.map((item) => resolved(item, key));
  if (value !== null && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, resolved(item, name)]));
  if (typeof value !== "string" || key === "hovertemplate") return value;
  const named = /^var\((--[a-z0-9-]+)\)$/.exec(value);
  return named ? colour(named[1]) : literally(value);
}

function layoutOf(figure, plot) {
  const layout = resolved(figure.layout);
  const wide = plot.clientWidth > 520;
  const axes = { gridcolor: colour("--grid"), zerolinecolor: colour("--line"), linecolor: colour("--line"), automargin: true };
  for (const name of ["xaxis", "yaxis"]) layout[name] = { ...axes, ...layout[name] };
  return {
    showlegend: false,
    ...layout,
    height: Number(plot.dataset.height),
    margin: { l: wide ? 60 : 44, r: 12, t: 10, b: 40 },
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--ink") },
    paper_bgcolor: colour("--background"),
    plot_bgcolor: colour("--background"),
    hoverlabel: { bgcolor: colour("--raised"), bordercolor: colour("--line"), font: { color: colour("--ink") } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 11 }, traceorder: "normal" },
    hovermode: "closest",
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", // a finger scrolls the page
    bargap: 0.25,
  };
}

const settings = {
  responsive: true,
  displaylogo: false,
  displayModeBar: false,
  doubleClick: "reset",
};

async function unpacked(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}
let library = null;
function plotly() {
  library ??= (async () => {
    const script = document.createElement("script");
    script.textContent = await unpacked("plotly");
    document.head.append(script);
    return window.Plotly;
  })();
  return library;
}

// Rows that a filter has hidden are in no plot: `meta` says of a curve, or of each of its points, whose it is.
const hidden = { entries: new Set(), runs: {} };
function shown(trace, plot) {
  const { entry, entries, run } = trace.meta ?? {};
  if (entry !== undefined && hidden.entries.has(entry)) return null;
  if (run !== undefined && hidden.runs[plot.dataset.entry]?.has(run)) return null;
  if (!entries) return trace;
  const kept = (values) => values?.filter((_, at) => !hidden.entries.has(entries[at]));
  const symbol = trace.marker?.symbol;
  const marker = Array.isArray(symbol) ? { ...trace.marker, symbol: kept(symbol) } : trace.marker;
  return { ...trace, x: kept(trace.x), y: kept(trace.y), text: kept(trace.text), marker };
}
const tracesOf = (figure, plot) => resolved(figure.data.map((trace) => shown(trace, plot)).filter((one) => one !== null));

async function draw(plot) {
  await plotly();
  await drawn(plot);
}
function drawn(plot, more = {}) {
  const figure = figureOf(plot);
  const first = !plot.dataset.drawn;
  const done = window.Plotly.react(plot, tracesOf(figure, plot), { ...layoutOf(figure, plot), ...more }, settings);
  plot.dataset.drawn = "true";
  if (first) plot.on("plotly_click", (click) => chosen(plot, click.points[0]));
  highlight(plot);
  return done;
}

// One run of an entry stands out in all plots that have a curve per run.
const selected = {};
function select(entry, run) {
  if (run === undefined) return;
  selected[entry] = selected[entry] === run ? undefined : run;
  for (const button of document.querySelectorAll(`button.run[data-entry="${entry}"]`))
    button.setAttribute("aria-pressed", String(Number(button.dataset.run) === selected[entry]));
  for (const plot of plots().filter((one) => one.dataset.entry === entry && one.dataset.drawn)) highlight(plot);
}
let chosen = (plot, point) => select(plot.dataset.entry, point.data.meta?.run);
function highlight(plot) {
  const run = selected[plot.dataset.entry];
  const runs = plot.data.map((trace) => trace.meta?.run);
  if (runs.every((one) => one === undefined)) return;
  const bright = runs.map((one) => run === undefined || one === run || one === undefined);
  const width = runs.map((one) => (run !== undefined && one === run ? 3 : 1.5));
  window.Plotly.restyle(plot, { opacity: bright.map((yes) => (yes ? 1 : 0.1)), "line.width": width });
}

function shorten(table, words) {
  const rows = [...table.tBodies[0].rows];
  for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  refilter(table, rows);
  for (const row of rows) {
    const details = row.dataset.details && document.getElementById(row.dataset.details);
    if (details) details.hidden = row.hidden;
  }
  return `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
}

function refilter(table, rows) {
  const of = (row) => row.querySelector("button.run")?.dataset;
  if (table.id === "entries") hidden.entries = new Set(rows.filter((row) => row.hidden).map((row) => row.dataset.details));
  else if (rows.length && of(rows[0]))
    hidden.runs[of(rows[0]).entry] = new Set(rows.filter((row) => row.hidden).map((row) => Number(of(row).run)));
  else return;
  const entry = table.id === "entries" ? "several" : of(rows[0]).entry;
  for (const plot of plots().filter((one) => one.dataset.entry === entry && one.dataset.drawn)) draw(plot);
}

function sort(header) {
  const table = header.closest("table");
  const up = header.getAttribute("aria-sort") !== "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", up ? "ascending" : "descending");
  const value = (row) => {
    const cell = row.cells[header.cellIndex];
    const data = cell.querySelector("data");
    return data ? Number(data.value) : cell.textContent.trim();
  };
  const order = (one, other) =>
    typeof one === "number" && typeof other === "number" ? one - other : typeof one === typeof other ? one.localeCompare(other, "en", { numeric: true }) : typeof one === "number" ? -1 : 1;
  const rows = [...table.tBodies[0].rows].sort((one, other) => order(value(one), value(other)) * (up ? 1 : -1));
  table.tBodies[0].append(...rows);
}

// A cell that a spreadsheet would take for a formula is marked as text.
function csv(rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return rows.map((row) => row.map(cell).join(",") + "\n").join("");
}
function save(text, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = `${name}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
}
function rowsOfFigure(figure) {
  const title = (axis) => figure.layout[axis]?.title?.text ?? axis[0];
  const rows = [["series", "label", title("xaxis"), title("yaxis")]];
  for (const trace of figure.data)
    (trace.x ?? trace.values).forEach((x, at) => rows.push([trace.name, trace.text?.[at] ?? "", x, (trace.y ?? trace.ids)[at]]));
  return rows;
}
function rowsOfTable(table) {
  const rows = [...table.rows].filter((row) => !row.hidden);
  const text = (cell) => cell.querySelector("data")?.value ?? cell.dataset.csv ?? cell.textContent.trim();
  return rows.map((row) => [...row.cells].map(text));
}
const fileName = (...parts) => parts.join(" ").replaceAll(/[^A-Za-z0-9.]+/g, "_");

const actions = {
  run: (button) => select(button.dataset.entry, Number(button.dataset.run)),
  sort: (button) => sort(button.closest("th")),
  theme: () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
  png: async (button) => {
    const plot = button.closest("figure").querySelector(".plot");
    const size = { width: 1000, height: Number(plot.dataset.height) * 1.4, scale: 2 };
    (await plotly()).downloadImage(plot, { format: "png", filename: fileName(plot.dataset.entry, plot.dataset.name), ...size });
  },
  "plot-csv": (button) => {
    const plot = button.closest("figure").querySelector(".plot");
    save(csv(rowsOfFigure(figureOf(plot))), fileName(plot.dataset.entry, plot.dataset.name));
  },
  "table-csv": (button) => {
    const table = document.getElementById(button.dataset.table);
    save(csv(rowsOfTable(table)), fileName(table.id));
  },
};

function theme(name) {
  document.documentElement.dataset.theme = name;
  document.getElementById("theme").textContent = name === "dark" ? "Light" : "Dark";
  for (const plot of plots().filter((one) => one.dataset.drawn)) draw(plot);
}

function openTarget() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === "DETAILS") target.open = true;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-action]");
  if (button) actions[button.dataset.action](button);
});
document.addEventListener("input", (event) => {
  const table = event.target.dataset.filters && document.getElementById(event.target.dataset.filters);
  if (!table) return;
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  document.getElementById(`${table.id}-count`).textContent = shorten(table, words);
});
addEventListener("hashchange", openTarget);

const preferred = matchMedia("(prefers-color-scheme: dark)");
preferred.addEventListener("change", () => theme(preferred.matches ? "dark" : "light"));
theme(preferred.matches ? "dark" : "light");
const seen = new IntersectionObserver(
  (changes) => {
    for (const change of changes.filter((one) => one.isIntersecting)) {
      seen.unobserve(change.target);
      draw(change.target);
    }
  },
  { rootMargin: "400px" },
);
for (const plot of plots()) {
  plot.style.height = `${plot.dataset.height}px`;
  seen.observe(plot);
}
openTarget();

// On a phone a row is a block, whose cells have their headings before them.
for (const table of document.querySelectorAll("table.blocks")) {
  const headings = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, place) => { if (cell.tagName === "TD") cell.dataset.heading ??= headings[place]; });
  }
}
// Paper is light and narrow, and does not wait: every plot that is open is drawn before, at the width of the paper.
const PAPER_WIDTH = 660;
const visible = () => plots().filter((one) => one.offsetParent !== null);
let before = null;
addEventListener("beforeprint", () => {
  before = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  if (window.Plotly) for (const plot of visible()) drawn(plot, { width: PAPER_WIDTH });
});
addEventListener("afterprint", () => {
  theme(before ?? "light");
});
if (plots().length) (window.requestIdleCallback ?? setTimeout)(() => plotly());
