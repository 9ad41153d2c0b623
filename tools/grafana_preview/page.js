// Loads a board and draws its panels. data-drawn on the root says "yes" when all are drawn; data-state on a panel how it went.

import { choose, chosen, make, show } from "/static/controls.js";
import { draw, forget } from "/static/draw.js";

const uid = location.pathname.split("/")[2];
const root = document.documentElement;
const ROW_PX = 30, GAP_PX = 8, AT_ONCE = 4;
let round = 0, timer = 0;

async function get(path) {
  const answer = await fetch(path);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

// One round at a time: what a round that is overtaken still finds out is not drawn.
async function load() {
  const mine = ++round;
  clearTimeout(timer);
  root.dataset.drawn = "no";
  problem("");
  try {
    const board = await get(`/api/board/${uid}?${chosen()}`);
    if (mine !== round) return;
    show(board);
    await panels(board, () => mine === round);
    if (mine !== round) return;
    later(board);
  } catch (error) {
    if (mine === round) problem(error.message);
  }
  if (mine === round) root.dataset.drawn = "yes";
}

function later(board) {
  const seconds = { s: 1, m: 60, h: 3600 }[board.refresh.slice(-1)] * parseInt(board.refresh, 10);
  if (board.time.to === "now" && seconds >= 5) timer = setTimeout(() => document.hidden ? later(board) : load(), seconds * 1000);
}

function problem(text) {
  const place = document.getElementById("problem");
  place.textContent = text;
  place.hidden = !text;
}

async function panels(board, isCurrent) {
  const asked = query(board);
  const found = get(`/api/marks/${board.uid}?${asked}`).catch((error) => ({ marks: [], errors: [error.message] }));
  const waiting = place(board);
  const context = { start: board.time.start, end: board.time.end, zoom, marks: found };
  const work = async () => {
    for (let next = waiting.shift(); next && isCurrent(); next = waiting.shift()) await fill(board, next, asked, context, isCurrent);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  const { errors } = await found;
  if (isCurrent() && errors.length) problem(errors.join("\n"));
}

// All panels of a round show the same time, and what is chosen of variables that the address does not name.
function query(board) {
  const asked = new URLSearchParams({ from: board.time.start, to: board.time.end });
  for (const one of board.variables) for (const value of one.values) asked.append(`var-${one.name}`, value);
  return asked;
}

const zoom = (start, end) => choose({ from: String(Math.round(start)), to: String(Math.round(end)) });

// Panels that are there already stay until they are drawn anew, so that a refresh does not flicker.
function place(board) {
  const grid = document.getElementById("grid"), before = new Map([...grid.children].map((one) => [one.dataset.id, one]));
  const elements = board.panels.map((panel) => {
    const old = before.get(String(panel.id)), element = frame(panel);
    if (old && panel.asks) element.querySelector(".body").replaceWith(old.querySelector(".body"));
    return element;
  });
  for (const one of before.values()) if (one.querySelector(".body")) forget(one.querySelector(".body"));
  grid.replaceChildren(...elements);
  return board.panels.map((panel, number) => ({ panel, element: elements[number] })).filter(({ panel }) => panel.asks);
}

function frame(panel) {
  const { x, y, w, h } = panel.place;
  const isRow = panel.type === "row";
  const body = make("div", panel.words.map(node), { class: "body" });
  const head = make("header", [make("h2", panel.title), ...(isRow ? [] : [...panel.links.map(arrow), ...about(panel, x + w / 2 > 12)])]);
  const element = make("section", isRow || (!panel.title && !panel.asks) ? [isRow ? head : body] : [head, body],
    { class: `panel ${panel.type}${panel.bare ? " bare" : ""}`, "data-id": panel.id, "data-type": panel.type });
  element.dataset.state = panel.asks ? "asking" : "drawn";
  element.style.gridColumn = `${x + 1} / span ${w}`;
  element.style.gridRow = `${y + 1} / span ${h}`;
  element.style.setProperty("--height", `${h * (ROW_PX + GAP_PX) - GAP_PX}px`);
  return element;
}

function arrow(link) {
  return make("a", "↗", { href: link.url, title: link.title, "aria-label": link.title, target: "_blank", rel: "noopener" });
}

function about(panel, isRight) {
  if (!panel.about.length) return [];
  const words = make("div", panel.about.map(node), { class: "words", role: "tooltip" });
  return [make("span", [make("button", "i", { type: "button", "aria-label": `About ${panel.title}` }), words],
    { class: `about${isRight ? " right" : ""}` })];
}

// Words are text; an element is one of the few that the server makes.
function node(one) {
  if (typeof one === "string") return document.createTextNode(one);
  return make(one.tag, one.in.map(node), one.url ? { href: one.url, target: "_blank", rel: "noopener" } : {});
}

async function fill(board, { panel, element }, asked, context, isCurrent) {
  const body = element.querySelector(".body");
  const width = Math.max(100, Math.round(body.clientWidth));
  let found;
  try {
    found = await get(`/api/panel/${board.uid}/${panel.id}?${asked}&width=${width}`);
  } catch (error) {
    found = { kind: "error", text: error.message };
  }
  if (!isCurrent()) return;
  try {
    await draw(body, found, { ...context, marks: (await context.marks).marks });
  } catch (error) {
    found = { kind: "error", text: `the preview failed: ${error.message}` };
    await draw(body, found, context);
  }
  for (const note of found.notes ?? []) body.append(make("p", note, { class: "note" }));
  element.dataset.state = { empty: "empty", error: "error" }[found.kind] ?? "drawn";
}

addEventListener("chosen", load);
addEventListener("popstate", load);
document.getElementById("again").onclick = load;
load();
