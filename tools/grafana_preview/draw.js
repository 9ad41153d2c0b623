// Draws one panel into an element from what the server shaped. All text of series is text: it is never read as HTML.

import { make, theme } from "/static/controls.js";

const SVG = "http://www.w3.org/2000/svg";
const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false, showTips: false };
const HOVER_MOST = 30;

export async function draw(body, found, context) {
  const kinds = { lines, heat, bands, numbers, bars, table, empty: words, error: words };
  const isPlot = ["lines", "heat", "bands"].includes(found.kind);
  if (!isPlot || !body.querySelector(":scope > .plot")) {
    forget(body);
    body.replaceChildren();
  }
  for (const note of body.querySelectorAll(":scope > .note")) note.remove();
  await kinds[found.kind](body, found, context);
}

export function forget(body) {
  for (const plot of body.querySelectorAll(".plot")) Plotly.purge(plot);
}

// plotly.js reads a little HTML in its texts; these make it plain.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

const DAY_MS = 86400000;
const timesAs = ({ start, end }) => end - start <= DAY_MS ? "%H:%M" : end - start <= 4 * DAY_MS ? "%b %d %H:%M" : "%b %d";

// plotly.js knows no time zones: it is given the local time as text.
function local(ms) {
  const date = new Date(ms);
  return new Date(ms - date.getTimezoneOffset() * 60000).toISOString().slice(0, 23).replace("T", " ");
}

function colors() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(["text", "dim", "line", "panel"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

function words(body, found) {
  body.append(make("p", found.text, { class: found.kind }));
}

// --- over time ---------------------------------------------------------------------------------------------------------------

async function plot(body, traces, layout, context, legend = []) {
  let element = body.querySelector(":scope > .plot"), list = body.querySelector(":scope > .legend");
  if (!element) {
    element = make("div", "", { class: "plot" });
    list = make("ul", "", { class: "legend" });
    body.append(element, list);
  }
  const { text, dim, line, panel } = colors();
  const axis = { gridcolor: line, linecolor: line, zeroline: false, tickfont: { color: dim, size: 11 }, fixedrange: true,
    spikecolor: dim, spikethickness: 1, spikedash: "dot" };
  const marks = marked(context);
  list.replaceChildren(...legend.map((one) => entry(element, one)));
  await Plotly.react(element, [...traces, ...marks.traces], {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: text, size: 11, family: "inherit" },
    margin: { l: 8, r: 10, t: 8, b: 22 }, showlegend: false, hovermode: "closest", dragmode: "zoom", bargap: 0.1,
    hoverlabel: { align: "left", namelength: -1, font: { size: 11, color: text }, bgcolor: panel, bordercolor: line },
    ...layout,
    xaxis: { ...axis, type: "date", range: [local(context.start), local(context.end)], fixedrange: false, showgrid: true,
      nticks: Math.max(3, Math.round(body.clientWidth / 110)), tickformat: timesAs(context), hoverformat: "%b %d %H:%M:%S",
      ...layout.xaxis },
    yaxis: { ...axis, automargin: true, ticklabeloverflow: "allow", ...layout.yaxis },
    yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
    shapes: [...(layout.shapes ?? []), ...marks.shapes],
  }, CONFIG);
  element.removeAllListeners?.("plotly_relayout");
  element.on("plotly_relayout", (change) => {
    const [from, to] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (from && to) context.zoom(new Date(from.replace(" ", "T")).getTime(), new Date(to.replace(" ", "T")).getTime());
  });
}

// An entry of the legend shows only its series when it is clicked, and all again.
function entry(plotElement, { name, color }) {
  const button = make("button", [make("i"), make("span", name)], { type: "button", title: name });
  button.firstChild.style.background = color;
  button.onclick = () => {
    const isAlone = button.classList.toggle("alone");
    for (const other of button.closest("ul").querySelectorAll(".alone")) if (other !== button) other.classList.remove("alone");
    const shown = plotElement.data.map((trace) => trace.meta?.mark || !isAlone || trace.meta?.name === name);
    Plotly.restyle(plotElement, { visible: shown });
  };
  return make("li", button);
}

function marked({ marks, start, end }) {
  const seen = marks.filter((one) => one.end >= start && one.start <= end);
  const line = (one) => ({ type: "line", xref: "x", yref: "paper", x0: local(one.start), x1: local(one.start), y0: 0, y1: 1,
    line: { color: one.color, width: 1, dash: "dash" } });
  const area = (one) => ({ type: "rect", xref: "x", yref: "paper", x0: local(one.start), x1: local(one.end), y0: 0, y1: 1,
    line: { width: 0 }, fillcolor: one.color, opacity: 0.08, layer: "below" });
  const trace = { x: seen.map((one) => local(one.start)), y: seen.map(() => 0.02), yaxis: "y2", mode: "markers", type: "scatter",
    marker: { color: seen.map((one) => one.color), size: 9, symbol: "triangle-up" }, meta: { mark: true },
    text: seen.map((one) => plain(`${one.name}: ${one.text}`)), hovertemplate: "%{text}<extra></extra>" };
  return { traces: seen.length ? [trace] : [], shapes: seen.flatMap((one) => one.end > one.start ? [area(one), line(one)] : [line(one)]) };
}

const STYLES = {
  line: (one, { stacked, width, fill }) => ({
    type: "scatter", mode: "lines", connectgaps: false, line: { color: one.color, width: stacked ? 0.5 : Math.max(1.2, width) },
    ...(stacked ? { stackgroup: "all", fillcolor: one.color } : fill ? { fill: "tozeroy" } : {}), ...alone(one.values),
  }),
  bars: (one, { fill, step }) => ({
    type: "bar", width: step * 0.9, marker: { color: one.color, opacity: fill, line: { width: 1, color: one.color } }, textposition: "none",
  }),
  points: (one) => ({ type: "scatter", mode: "markers", marker: { color: one.color, size: 6 } }),
};

async function lines(body, found, context) {
  const x = found.times.map(local), { axis } = found;
  const traces = found.traces.map((one) => ({
    name: plain(one.name), meta: { name: one.name }, x, y: one.values, text: one.texts.map(plain),
    hovertemplate: "%{fullData.name}: %{text}<extra></extra>", ...STYLES[found.style](one, found),
  }));
  const range = axis.log ? axis.range.map(Math.log10) : axis.range;
  const inside = found.lines.filter((one) => one.at >= axis.range[0] && one.at <= axis.range[1]);
  await plot(body, traces, {
    hovermode: found.traces.length <= HOVER_MOST && found.style === "line" ? "x unified" : "closest",
    barmode: found.stacked ? "stack" : "overlay",
    yaxis: { type: axis.log ? "log" : "linear", range, tickvals: axis.ticks, ticktext: axis.texts.map(plain) },
    shapes: inside.map((one) => ({ type: "line", xref: "paper", x0: 0, x1: 1, yref: "y", y0: one.at, y1: one.at,
      line: { color: one.color, width: 1.5, dash: "dash" } })),
  }, context, found.traces);
}

// A value with none beside it would be a line of no length: it is a point.
function alone(values) {
  const isAlone = (value, n) => value !== null && (values[n - 1] ?? null) === null && (values[n + 1] ?? null) === null;
  return values.some(isAlone) ? { mode: "lines+markers", marker: { size: values.map((value, n) => isAlone(value, n) ? 4 : 0) } } : {};
}

async function heat(body, found, context) {
  const isTurned = found.reverse !== (theme() === found.turned_in);
  const rows = found.rows.map((_, number) => number);
  const shown = rows.filter((number) => number % found.every === 0);
  const ticks = shown.map((number) => found.between ? number + 0.5 : number);
  const isWide = found.times.length ? body.clientWidth / found.times.length > 4 : false;
  const { dim } = colors();
  await plot(body, [{
    type: "heatmap", x: found.times.map(local), y: rows, z: found.values, zmin: found.range[0], zmax: found.range[1],
    text: found.texts.map((row) => row.map(plain)), customdata: found.rows.map((name) => found.times.map(() => plain(name))),
    hovertemplate: "%{customdata}<br>%{x}<br>%{text}<extra></extra>", colorscale: found.scheme, reversescale: isTurned,
    xgap: isWide ? 1 : 0, ygap: found.rows.length < 60 ? 1 : 0, hoverongaps: false,
    colorbar: { thickness: 10, outlinewidth: 0, tickvals: found.ticks, ticktext: found.tick_texts, tickfont: { color: dim, size: 11 } },
  }], {
    yaxis: { range: [-0.5, rows.length - 0.5], tickvals: ticks, ticktext: shown.map((n) => plain(short(found.rows[n]))),
      showgrid: false, title: { text: found.between ? "up to" : "", font: { size: 11, color: dim } } },
    xaxis: { showgrid: false },
  }, context);
}

const short = (name) => name.length > 36 ? `${name.slice(0, 35)}…` : name;

async function bands(body, found, context) {
  const rows = found.rows.map((_, number) => number), every = Math.ceil(rows.length / 30), shown = rows.filter((n) => n % every === 0);
  const traces = found.states.map((state) => ({
    type: "bar", orientation: "h", name: plain(state.text), meta: { name: state.text }, marker: { color: state.color, line: { width: 0 } },
    base: state.bands.map(([, start]) => local(start)), x: state.bands.map(([, start, end]) => end - start),
    y: state.bands.map(([row]) => row), text: state.bands.map(([row]) => plain(found.rows[row])), textposition: "none",
    hovertemplate: "%{text}: %{fullData.name}<br>%{base}<extra></extra>",
  }));
  await plot(body, traces, {
    barmode: "overlay",
    yaxis: { range: [rows.length - 0.5, -0.5], tickvals: shown, ticktext: shown.map((n) => plain(short(found.rows[n]))), showgrid: false },
  }, context, found.states.map((state) => ({ name: state.text, color: state.color })));
}

// --- of now ------------------------------------------------------------------------------------------------------------------

function numbers(body, found) {
  const items = found.items.map((one) => {
    const value = make("strong", one.text);
    value.style.color = one.color;
    const item = make("div", [...(one.name ? [make("span", one.name, { class: "dim" })] : []), value], { class: "number" });
    if (one.curve.length) item.append(curve(one));
    return item;
  });
  body.append(make("div", items, { class: "numbers" }));
  for (const value of body.querySelectorAll("strong")) fit(value);
}

// Colours that are told apart as areas are hard to read as small letters: these are nearer to the colour of words.
function ink(color) {
  return color && `color-mix(in srgb, ${color} 64%, var(--ink))`;
}

// The number is as large as its place lets it be.
function fit(value) {
  const { clientWidth, clientHeight } = value.closest(".number");
  const highest = Math.min(clientHeight * 0.5, 56);
  value.style.fontSize = `${highest}px`;
  value.style.fontSize = `${Math.max(13, highest * Math.min(1, (clientWidth * 0.92) / value.offsetWidth))}px`;
}

function curve(one) {
  const points = one.curve.map((value, place) => [place, value]).filter(([, value]) => value !== null);
  const values = points.map(([, value]) => value), low = Math.min(...values), high = Math.max(...values);
  const at = ([place, value]) => `${(100 * place) / (one.curve.length - 1)},${high > low ? 28 - (26 * (value - low)) / (high - low) : 15}`;
  const svg = document.createElementNS(SVG, "svg"), line = document.createElementNS(SVG, "polyline");
  svg.setAttribute("viewBox", "0 0 100 30");
  svg.setAttribute("preserveAspectRatio", "none");
  line.setAttribute("points", points.map(at).join(" "));
  line.style.stroke = one.color || "var(--series)";
  svg.append(line);
  return svg;
}

function bars(body, found) {
  const rows = found.items.flatMap((one) => {
    const part = make("i"), value = make("strong", one.text);
    part.style.width = `${one.part * 100}%`;
    part.style.background = one.color;
    value.style.color = ink(one.color);
    return [make("span", one.name, { title: one.name }), make("div", part, { class: "bar" }), value];
  });
  body.append(make("div", rows, { class: "bars" }));
}

function table(body, found) {
  const [[title, isDescending] = ["", false]] = [found.sorted[0]];
  const sorted = { column: found.columns.findIndex((one) => one.title === title), down: isDescending };
  const rows = [...found.rows], inside = make("tbody");
  const heads = found.columns.map((one, column) => {
    const button = make("button", one.title, { type: "button" });
    button.onclick = () => {
      sorted.down = sorted.column === column ? !sorted.down : one.number;
      sorted.column = column;
      rows.sort((a, b) => compare(a[column].sort, b[column].sort, sorted.down));
      fill();
    };
    return make("th", button, one.number ? { class: "n" } : {});
  });
  const fill = () => {
    heads.forEach((head, column) => head.setAttribute("aria-sort",
      column !== sorted.column ? "none" : sorted.down ? "descending" : "ascending"));
    inside.replaceChildren(...rows.map((row) => make("tr", row.map((cell, column) => one(cell, found.columns[column])))));
  };
  fill();
  body.append(make("div", make("table", [make("thead", make("tr", heads)), inside]), { class: "scroll" }));
}

function one(cell, column) {
  const inside = cell.link ? make("a", cell.text, { href: cell.link, title: cell.title }) : make("span", cell.text);
  const element = make("td", inside, column.number ? { class: "n" } : {});
  if (cell.color && cell.filled) element.style.background = cell.color;
  if (cell.color && !cell.filled) {
    inside.style.color = ink(cell.color);
    inside.classList.toggle("told", Boolean(cell.link));
  }
  return element;
}

function compare(a, b, isDown) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
  return isDown ? -order : order;
}
