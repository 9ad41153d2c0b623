// What stands above the panels: time, variables, theme, and the way to the other boards. All choices are kept in the address.

const RANGES = [["now-15m", "Last 15 minutes"], ["now-1h", "Last hour"], ["now-3h", "Last 3 hours"], ["now-6h", "Last 6 hours"],
  ["now-12h", "Last 12 hours"], ["now-24h", "Last 24 hours"], ["now-2d", "Last 2 days"], ["now-7d", "Last 7 days"],
  ["now-30d", "Last 30 days"]];
const MOST_OPTIONS = 300;

export function make(tag, content = "", attributes = {}) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...(Array.isArray(content) ? content : [content]));
  return element;
}

export const chosen = () => new URLSearchParams(location.search);

// Puts a choice into the address; a list is repeated, null takes it out.
export function choose(changes) {
  const now = chosen();
  for (const [name, value] of Object.entries(changes)) {
    now.delete(name);
    for (const one of Array.isArray(value) ? value : value === null ? [] : [value]) now.append(name, one);
  }
  history.pushState(null, "", `${location.pathname}?${now}`);
  dispatchEvent(new Event("chosen"));
}

export function theme() {
  return chosen().get("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

export function show(board) {
  document.title = `${board.title} (preview)`;
  document.getElementById("title").textContent = board.title;
  document.getElementById("source").textContent = `from ${board.prometheus}`;
  showTime(board.time);
  showTheme();
  showBoards(board);
  document.getElementById("variables").replaceChildren(...board.variables.map((one) => one.several ? several(one) : single(one)));
}

function showTime(time) {
  const select = document.getElementById("time");
  const known = time.to === "now" && RANGES.find(([from]) => from === time.from);
  const at = (ms, more) => new Date(ms).toLocaleString(undefined, more);
  const own = known ? [] : [[time.from, time.to === "now" ? last(time.from) : `${at(time.start)} to ${at(time.end, { timeZoneName: "short" })}`]];
  select.replaceChildren(...[...own, ...RANGES].map(([value, text]) => make("option", text, { value })));
  select.value = time.from;
  select.onchange = () => choose({ from: select.value, to: "now" });
}

function last(from) {
  const [, number, unit] = /^now-(\d+)([smhdw])$/.exec(from) ?? [];
  const name = { s: "seconds", m: "minutes", h: "hours", d: "days", w: "weeks" }[unit];
  return name ? `Last ${number} ${name}` : `From ${from}`;
}

function showTheme() {
  const other = theme() === "dark" ? "light" : "dark";
  const button = document.getElementById("theme");
  document.documentElement.dataset.theme = theme();
  button.textContent = `${other[0].toUpperCase()}${other.slice(1)} theme`;
  button.onclick = () => choose({ theme: other });
}

// Links between boards take the choice along.
function showBoards(board) {
  const links = board.boards.map((one) => {
    const link = make("a", one.title.replace(/^tachoscope \/ /, ""), { href: `/d/${one.uid}?${chosen()}` });
    if (one.uid === board.uid) link.setAttribute("aria-current", "page");
    return link;
  });
  document.getElementById("boards").replaceChildren(...(links.length > 1 ? links : []));
}

function single(variable) {
  const select = make("select", variable.options.map((value) => make("option", value, { value })));
  const [value] = variable.values;
  if (value !== undefined && !variable.options.includes(value)) select.append(make("option", value, { value }));
  if (value === undefined) select.append(make("option", "none found", { value: "" }));
  select.value = value ?? "";
  select.onchange = () => choose({ [`var-${variable.name}`]: select.value });
  return make("label", [make("span", variable.title), select], { "data-variable": variable.name });
}

// Several values: boxes to tick, of many those that a filter leaves; the choice holds when the list is closed.
function several(variable) {
  const values = new Set(variable.values);
  const summary = make("summary", values.has(variable.all) ? "All" : [...values].join(" + ") || "none found");
  const filter = make("input", "", { type: "search", placeholder: `Find in ${variable.options.length}`, "aria-label": "Find" });
  const rows = make("div", "", { class: "options" });
  const all = [...(variable.all ? [[variable.all, "All"]] : []), ...[...new Set([...variable.options, ...values])].filter((value) => value !== variable.all)
    .map((value) => [value, value])];
  const fill = () => {
    const fitting = all.filter(([, text]) => text.toLowerCase().includes(filter.value.toLowerCase()));
    rows.replaceChildren(...fitting.slice(0, MOST_OPTIONS).map(([value, text]) => option(value, text)));
    if (fitting.length > MOST_OPTIONS) rows.append(make("p", `and ${fitting.length - MOST_OPTIONS} more`, { class: "dim" }));
  };
  const option = (value, text) => {
    const box = make("input", "", { type: "checkbox", value });
    box.checked = values.has(value);
    box.onchange = () => {
      if (value === variable.all) values.clear();
      else values.delete(variable.all);
      if (box.checked) values.add(value);
      else values.delete(value);
      if (!values.size && variable.all) values.add(variable.all);
      fill();
    };
    return make("label", [box, make("span", text)]);
  };
  const list = make("details", [summary, make("div", [...(all.length > 12 ? [filter] : []), rows], { class: "list" })]);
  filter.oninput = fill;
  fill();
  list.ontoggle = () => {
    const now = [...values];
    if (!list.open && now.length && now.join("\n") !== variable.values.join("\n")) choose({ [`var-${variable.name}`]: now });
  };
  return make("div", [make("span", variable.title), list], { class: "several", "data-variable": variable.name });
}

// A click elsewhere closes an open list.
addEventListener("pointerdown", (event) => {
  for (const list of document.querySelectorAll("details[open]")) if (!list.contains(event.target)) list.open = false;
});
