"use strict";
// Plots and tables of the results that the filters leave. Texts are set as texts, and never read as markup.

const MOST = { lines: 12, results: 200, systems: 200 };
const NAMES = {
  size: "accelerators or ranks", batch_size: "batch size", nodes: "nodes", score_minutes: "score in minutes",
  cost: "cost to train at the given price per hour", joules: "energy to the target in joules", size_hours: "accelerator hours",
};
const COSTS = ["score_minutes", "cost", "joules"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "triangle-down"];
const field = (id) => document.getElementById(id);
const series = (number) => ({ color: `var(--series-${number % 8})`, symbol: SYMBOLS[(number + Math.floor(number / 8)) % 8] });
const unique = (values) => [...new Set(values)];
const known = (value) => value !== null && value !== undefined;
const time = (minutes) => (known(minutes) ? minutes.toFixed(4) : "–");
const date = (began) => (began ?? "").replace("T", " ").replace("+00:00", "");
const revision = (full) => (full ?? "").replace(/^([^+]{8})[^+]*/, "$1");
const by = (key) => (one, other) => ((key(one) ?? "") < (key(other) ?? "") ? -1 : (key(one) ?? "") > (key(other) ?? "") ? 1 : 0);

function element(name, content = "", set = {}) {
  const made = Object.assign(document.createElement(name), set);
  made.append(...[content].flat());
  return made;
}
const number = (value, text) => element("data", text, { value: String(value) });

let lines, points, stored;

function pointsOf(columns) {
  const names = Object.keys(columns);
  return columns.line.map((_, at) => {
    const point = { at };
    for (const name of names) point[name] = columns[name][at];
    const line = lines[point.line];
    point.size_hours = known(point.score_minutes) && line.size ? (point.score_minutes * line.size) / 60 : null;
    point.words = `${line.title} ${point.revision ?? ""} ${point.host ?? ""} ${point.folder} ${point.ruleset} ${date(point.began)} ${remark(point)}`.toLowerCase();
    return point;
  });
}

const verdict = (point) => (point.copy_of !== null ? "COPY" : point.state.toUpperCase());

function remark(point) {
  const reasons = stored.texts[point.reasons].replace(/^Incomplete: /, point.state === "incomplete" ? "" : "$&");
  const said = point.valid ? [] : [`${point.state.toUpperCase()}: ${reasons}`];
  if (point.failed) said.push(`${point.failed} run(s) failed; the interval is of the others`);
  if (point.copy_of !== null) said.push(`COPY: it has a log of ${point.copy_of}`);
  if (stored.texts[point.versions]) said.push(stored.texts[point.versions]);
  return said.join("; ");
}

function left() {
  const words = field("words").value.toLowerCase().split(/\s+/).filter(Boolean);
  const [benchmark, submitter, system, kind, since, until] = ["benchmark", "submitter", "system", "kind", "since", "until"].map((id) => field(id).value);
  const valid = field("valid").checked;
  const fits = lines.map(
    (line) =>
      (!benchmark || line.benchmark === benchmark) && (!submitter || line.submitter === submitter) && (!system || line.system === system) && (!kind || line.kind === kind),
  );
  return points.filter(
    (point) =>
      fits[point.line] &&
      (!valid || point.valid) &&
      (!since || (point.began ?? "") >= since) &&
      (!until || (point.began ?? "").slice(0, 10) <= until) &&
      words.every((word) => point.words.includes(word)),
  );
}

const hover = (point) =>
  [lines[point.line].title, `${date(point.began)} ${revision(point.revision)}`, `${time(point.score_minutes)} min, ${point.runs}/${point.runs_required} runs`, remark(point)]
    .filter(Boolean)
    .join(" | ");

function trace(name, shown, x, y, more) {
  return { type: "scatter", name, x: shown.map(x), y: shown.map(y), text: shown.map(hover), customdata: shown.map((point) => point.at), hovertemplate: "%{text}<extra></extra>", ...more };
}

function drawScores(kept) {
  const over = field("over").value;
  const there = unique(kept.map((point) => point.line));
  const drawn = there.slice(0, MOST.lines);
  const x = { began: (point) => point.began, revision: (point) => revision(point.revision) || "none", ruleset: (point) => point.ruleset }[over];
  const chosenLines = new Set(drawn);
  const shown = kept.filter((point) => chosenLines.has(point.line) && (over !== "began" || point.began));
  const rounds = (one, other) => one.ruleset.localeCompare(other.ruleset, "en", { numeric: true });
  const order = unique([...shown].sort(over === "ruleset" ? rounds : by((point) => point.began)).map(x));
  const data = [];
  drawn.forEach((line, at) => {
    const { color, symbol } = series(at);
    const name = lines[line].title;
    const own = shown.filter((point) => point.line === line);
    const joined = own.filter((point) => point.joined);
    const group = { legendgroup: String(line), showlegend: false };
    const bars = {
      type: "data", symmetric: false, color, thickness: 1, width: 3,
      array: joined.map((point) => (known(point.high_minutes) ? point.high_minutes - point.score_minutes : 0)),
      arrayminus: joined.map((point) => (known(point.low_minutes) ? point.score_minutes - point.low_minutes : 0)),
    };
    const minutes = (point) => point.score_minutes;
    data.push(trace(name, joined, x, minutes, { ...group, showlegend: true, mode: "lines+markers", line: { color, width: 1.2 }, marker: { color, symbol, size: 7 }, error_y: bars }));
    const apart = [
      ["COPY", own.filter((point) => point.copy_of !== null), "diamond-open", "var(--dropped)"],
      ["INCOMPLETE", own.filter((point) => point.copy_of === null && point.state === "incomplete"), "circle-open", "var(--dropped)"],
      ["NOT VALID", own.filter((point) => point.copy_of === null && !point.joined && point.state !== "incomplete"), "x", "var(--failed)"],
    ];
    for (const [what, marked, mark, colour] of apart) {
      const style = { ...group, mode: "markers", marker: { color: colour, symbol: mark, size: 8 } };
      const scored = marked.filter((point) => point.score_minutes > 0);
      const scoreless = marked.filter((point) => !(point.score_minutes > 0));
      if (scored.length) data.push(trace(`${name}: ${what}`, scored, x, minutes, style));
      if (scoreless.length) data.push(trace(`${name}: ${what}, without a score`, scoreless, x, () => 0, { ...style, yaxis: "y2" }));
    }
  });
  const category = { type: "category", categoryorder: "array", categoryarray: order };
  update("scores", data, {
    showlegend: true,
    xaxis: { anchor: "y2", title: { text: { began: "date (UTC)", revision: "revision, by date", ruleset: "round" }[over] }, ...(over === "began" ? { type: "date" } : category) },
    yaxis: { title: { text: "score in minutes" }, domain: [0.08, 1], type: field("scale").value, rangemode: "nonnegative" },
    yaxis2: { domain: [0, 0.05], range: [-1, 1], visible: false, fixedrange: true },
  });
  const undated = kept.filter((point) => over === "began" && !point.began).length;
  field("scores-note").textContent =
    (there.length > drawn.length ? `The first ${drawn.length} of ${there.length} lines are drawn; filter to see others. ` : "") + (undated ? `${undated} results without a date are not drawn.` : "");
}

// The latest valid result of each line, if it is known in both factors.
function drawFactors(kept) {
  const [across, up] = [field("across").value, field("up").value];
  const latest = new Map();
  for (const point of [...kept].sort(by((point) => point.began))) if (point.joined) latest.set(point.line, point);
  const valueOf = (point, name) => (name in lines[point.line] ? lines[point.line][name] : point[name]);
  const of = (name) => (point) => valueOf(point, name);
  const all = [...latest.values()];
  const shown = all.filter((point) => known(valueOf(point, across)) && known(valueOf(point, up)));
  const data = [];
  unique(shown.map((point) => lines[point.line].task)).forEach((task, at) => {
    const { color, symbol } = series(at);
    const own = shown.filter((point) => lines[point.line].task === task);
    const group = { legendgroup: task };
    data.push(trace(task, own, of(across), of(up), { ...group, mode: "markers", marker: { color, symbol, size: 8 } }));
    const quiet = { ...group, showlegend: false, mode: "lines", hoverinfo: "skip", hovertemplate: undefined };
    if (across === "size")
      for (const family of unique(own.map((point) => lines[point.line].family))) {
        const sizes = own.filter((point) => lines[point.line].family === family).sort((one, other) => valueOf(one, "size") - valueOf(other, "size"));
        const distinct = sizes.filter((point, index) => index === 0 || valueOf(point, "size") !== valueOf(sizes[index - 1], "size"));
        if (distinct.length > 1) data.push(trace(`${task}, one family`, distinct, of(across), of(up), { ...quiet, line: { color, width: 1.2 } }));
      }
    if (across !== up && COSTS.includes(across) && COSTS.includes(up)) {
      const front = own
        .filter((point) => !own.some((other) => dominates(other, point, across, up)))
        .sort((one, other) => valueOf(one, across) - valueOf(other, across));
      if (own.length > 1) data.push(trace(`${task}, Pareto front`, front, of(across), of(up), { ...quiet, line: { color, width: 1.2, dash: "dash", shape: "hv" } }));
    }
  });
  const scale = across === "size" ? "log" : "linear";
  update("factors", data, {
    showlegend: true,
    xaxis: { title: { text: NAMES[across] }, type: scale },
    yaxis: { title: { text: NAMES[up] }, type: scale, rangemode: "tozero" },
  });
  const missing = unique([across, up]).filter((name) => all.some((point) => !known(valueOf(point, name)))).map((name) => {
    const count = all.filter((point) => !known(valueOf(point, name))).length;
    const why = { joules: " (no usable power logs)", cost: stored.priced ? " (no price for the system)" : " (no --price-per-hour was given)" }[name] ?? "";
    return `${NAMES[name]} of ${count} of ${all.length} is unknown${why}`;
  });
  field("factors-note").textContent = missing.length ? `${missing.join("; ")}. These are not drawn.` : "";
}
const dominates = (other, point, across, up) =>
  other[across] <= point[across] && other[up] <= point[up] && (other[across] < point[across] || other[up] < point[up]);

function update(name, data, layout) {
  Object.assign(figures.history.find((one) => one.name === name), { data, layout });
  for (const plot of plots().filter((one) => one.dataset.name === name && one.dataset.drawn)) draw(plot);
}

function table(id, heads, rows) {
  const head = element("tr", heads.map((text) => element("th", element("button", text, { type: "button" }), { scope: "col" })));
  for (const button of head.querySelectorAll("button")) button.dataset.action = "sort";
  field(id).className = "blocks";
  field(id).replaceChildren(element("thead", head), element("tbody", rows.map((row) => headed(heads, row))));
}
// A row whose cells name their column, for telephones.
function headed(heads, cells) {
  cells.forEach((cell, at) => cell.tagName === "TD" && (cell.dataset.heading = heads[at]));
  return element("tr", cells);
}
function opener(point, text) {
  const button = element("button", text, { type: "button", className: "result" });
  button.dataset.result = point.at;
  return button;
}

function drawPivot(kept) {
  const valid = kept.filter((point) => point.joined);
  const columns = unique(valid.map((point) => lines[point.line].benchmark)).sort();
  const systems = unique(valid.map((point) => lines[point.line].system)).sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  const better = field("cell").value === "latest" ? (one, other) => (one.began ?? "") > (other.began ?? "") : (one, other) => one.score_minutes < other.score_minutes;
  const cells = new Map();
  for (const point of valid) {
    const key = JSON.stringify([lines[point.line].system, lines[point.line].benchmark, lines[point.line].task]);
    const cell = cells.get(key) ?? { point, count: 0 };
    cells.set(key, { point: better(point, cell.point) ? point : cell.point, count: cell.count + 1 });
  }
  const tasks = Object.fromEntries(columns.map((name) => [name, unique(valid.filter((point) => lines[point.line].benchmark === name).map((point) => lines[point.line].task))]));
  const wide = columns.flatMap((name) => tasks[name].map((task) => [name, task]));
  const heads = wide.map(([name, task]) => (tasks[name].length > 1 || name !== task.split(",")[0] ? `${name} (${task})` : name));
  const rows = systems.slice(0, MOST.systems).map((system) => [
    element("th", system, { scope: "row" }),
    ...wide.map(([name, task]) => {
      const cell = cells.get(JSON.stringify([system, name, task]));
      return element("td", cell ? [number(cell.point.score_minutes, ""), opener(cell.point, time(cell.point.score_minutes)), ` of ${cell.count}`] : "–", { className: "number" });
    }),
  ]);
  table("pivot", ["System", ...heads], rows);
  field("pivot-note").textContent = systems.length > MOST.systems ? `The first ${MOST.systems} of ${systems.length} systems; filter to see others.` : "";
}

function drawResults(kept) {
  const latest = [...kept].sort((one, other) => by((point) => point.began)(other, one)).slice(0, MOST.results);
  table(
    "results",
    ["Verdict", "Score, min", "95 % interval", "Runs", "Began (UTC)", "Line", "Revision", "Remarks", "Round"],
    latest.map((point) => [
      element("td", element("span", verdict(point), { className: `badge ${point.joined ? "good" : point.state === "incomplete" ? "open" : "bad"}` })),
      element("td", known(point.score_minutes) ? number(point.score_minutes, time(point.score_minutes)) : "–", { className: "number" }),
      element("td", known(point.low_minutes) ? `${time(point.low_minutes)} to ${time(point.high_minutes)}` : "–", { className: "number" }),
      element("td", opener(point, `${point.runs}/${point.runs_required}`), { className: "number" }),
      element("td", date(point.began)),
      element("th", lines[point.line].title, { scope: "row", className: "text" }),
      element("td", revision(point.revision) || "–"),
      element("td", remark(point) || "–", { className: "text message" }),
      element("td", point.ruleset),
    ]),
  );
  field("results-note").textContent = kept.length > latest.length ? `The latest ${latest.length} of ${kept.length} results; filter to see others.` : "";
}

function show(at) {
  const point = points[at];
  const facts = [
    ["Result", `${verdict(point)}, ${known(point.score_minutes) ? `score ${time(point.score_minutes)} min` : "no score"}`],
    ["Line", lines[point.line].title],
    ["Began (UTC)", date(point.began) || "unknown"],
    ["Revision, host", `${point.revision ?? "unknown"}, ${point.host ?? "unknown"}`],
    ["Energy", known(point.joules) ? `${point.joules.toFixed(1)} J, mean of the kept runs` : "unknown: no usable power logs"],
    ["Cost", known(point.cost) ? point.cost.toFixed(2) : stored.priced ? "unknown: no price for the system, or no score" : "unknown: no --price-per-hour"],
    ["Remarks", remark(point) || "none"],
    ["Logs in", point.page ? element("a", point.folder, { href: point.page }) : point.folder],
  ];
  const shown = [element("dl", facts.flatMap(([name, text]) => [element("dt", name), element("dd", text)]))];
  const runs = stored.runs[at];
  if (runs) {
    const heads = ["Run", "Seed", "Status", "Minutes", "In the score", "Findings", "Log"];
    const rows = runs.map(([run, seed, status, minutes, standing, findings, file]) =>
      headed(heads, [
        element("th", String(run), { scope: "row" }),
        element("td", seed ?? "–", { className: "number" }),
        element("td", status),
        element("td", time(minutes), { className: "number" }),
        element("td", standing),
        element("td", stored.texts[findings] || "none", { className: "text" }),
        element("td", `${point.folder}/${file}`, { className: "text" }),
      ]),
    );
    const head = element("tr", heads.map((text) => element("th", text, { scope: "col" })));
    const inside = element("table", [element("thead", head), element("tbody", rows)], { id: "runs-of-result", className: "blocks" });
    shown.push(element("div", inside, { className: "scroll", tabIndex: 0 }));
  } else shown.push(element("p", "This page has only the runs of the latest results.", { className: "note" }));
  field("runs").replaceChildren(...shown);
  field("result").scrollIntoView({ block: "start" });
  field("result").focus({ preventScroll: true });
}

function redraw() {
  const kept = left();
  field("count").textContent = `${kept.length} of ${points.length} results`;
  drawScores(kept);
  drawPivot(kept);
  drawFactors(kept);
  drawResults(kept);
}

chosen = (_, point) => known(point.customdata) && show(point.customdata);
document.addEventListener("click", (event) => {
  const button = event.target.closest("button.result");
  if (button) show(Number(button.dataset.result));
});

(async () => {
  stored = JSON.parse(await unpacked("history"));
  lines = stored.lines;
  points = pointsOf(stored.points);
  for (const id of ["benchmark", "submitter", "system", "kind"])
    for (const value of unique(lines.map((line) => line[id]).filter(Boolean)).sort()) field(id).append(element("option", value, { value }));
  if (!points.some((point) => lines[point.line].kind !== "published")) field("over").value = "ruleset";
  document.body.addEventListener("input", redraw);
  redraw();
  document.body.dataset.ready = "true";
})();
