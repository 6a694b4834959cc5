// The live page of a run in the admin. Whatever comes is put in as text, never as HTML.
"use strict";

const live = document.getElementById("live");
const seen = { seq: Number(live.dataset.seq), active: live.dataset.active === "yes" };
const place = (id) => document.getElementById(id);

function element(tag, text, facts = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(facts)) made.setAttribute(name, value);
  return made;
}

function row(...parts) {
  const made = document.createElement("li");
  for (const part of parts) if (part) made.append(part, " ");
  return made;
}

function link(url, text) {
  return url.startsWith("/") ? element("a", text, { href: url }) : element("span", text);
}

function show(news) {
  if (news.seq === seen.seq || !news.steps) return;
  seen.seq = news.seq;
  seen.active = news.active;
  if (place("state").textContent !== news.status_label) place("state").textContent = news.status_label;
  place("state").dataset.status = news.status;
  place("note").textContent = news.note;
  place("at").textContent = news.at;
  mark(news);
  replace("waits", news.waits, showWait);
  replace("calls", news.calls, showCall);
  addSteps(news.steps);
  if (!news.active) write(null);
}

// A list that says the same stays as it is, and with it the place of who reads or tabs through it.
function replace(id, list, shown) {
  const told = JSON.stringify(list);
  if (place(id).dataset.told === told) return;
  place(id).dataset.told = told;
  place(id).replaceChildren(...list.map(shown));
}

function showWait(one) {
  const whom = element("span", `${one.kind} · ${place("waits").dataset.whom} ${one.whom}`);
  return row(element("b", one.message, { dir: "auto" }), whom, link(one.url, one.link));
}

function showCall(one) {
  const attempts = `${one.attempts} ${place("calls").dataset.attempts}`;
  return row(
    link(one.url, one.tool),
    element("span", one.label, { class: "live-tag", "data-status": one.status }),
    one.attempts > 1 && element("span", attempts),
    element("span", one.words, { dir: "auto" }),
  );
}

function addSteps(steps) {
  const list = place("steps");
  const follows = list.scrollTop + list.clientHeight > list.scrollHeight - 40;
  const last = list.lastElementChild ? Number(list.lastElementChild.dataset.seq) : 0;
  for (const one of steps.filter((step) => step.seq > last)) {
    const item = row(
      element("time", one.at.slice(11, 19), { datetime: one.at }),
      element("code", one.type),
      element("span", one.words, { class: "live-text", dir: "auto" }),
    );
    item.dataset.seq = one.seq;
    list.append(item);
    if (one.type === "message.added") write(null);
  }
  if (follows) list.scrollTop = list.scrollHeight;
}

function mark(news) {
  if (!place("graph")) return;
  for (const box of document.querySelectorAll("#graph .box")) {
    box.classList.toggle("here", news.places.includes(box.dataset.node));
  }
  place("graph-title").textContent = `${live.dataset.title} ${news.at}`;
  bringIntoView();
}

// A wide picture is scrolled to where the run is; the page itself stays where it is.
function bringIntoView() {
  const box = document.querySelector("#graph .here");
  if (!box) return;
  const frame = place("graph").parentElement;
  const [inner, outer] = [box.getBoundingClientRect(), frame.getBoundingClientRect()];
  frame.scrollLeft += inner.left - outer.left - (outer.width - inner.width) / 2;
  frame.scrollTop += inner.top - outer.top - (outer.height - inner.height) / 2;
}

function write(delta) {
  if (!delta || delta.restarts) place("writing").textContent = "";
  else place("writing").append(delta.text);
  place("writing-box").hidden = !place("writing").textContent;
}

function connected(is) {
  const words = place("connection");
  words.textContent = is ? words.dataset.on : words.dataset.off;
}

place("steps").scrollTop = place("steps").scrollHeight;
connected(false);
bringIntoView();
follow({
  newsAt: live.dataset.news,
  socketAt: live.dataset.socket,
  seen,
  show,
  write,
  lost: (is) => { place("problem").hidden = !is; },
  connected,
});
