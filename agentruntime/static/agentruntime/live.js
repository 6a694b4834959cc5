// Keeps a conversation's page up to date, with follow.js. What comes is HTML that the server has
// escaped; text that is still being written comes as text and is shown as such.
"use strict";

const page = document.getElementById("thread");
const entries = document.getElementById("entries");
const problem = document.getElementById("problem");
const composer = document.getElementById("composer");

const seen = { seq: Number(page.dataset.seq), active: page.dataset.active === "yes" };

// --- what is new ------------------------------------------------------------------------------

function show(news) {
  if (news.seq === seen.seq || !news.entries) return;
  const follows = innerHeight + scrollY > document.documentElement.scrollHeight - 120;
  seen.seq = news.seq;
  seen.active = news.active;
  showState(news);
  replaceEntries(news.entries);
  showWritten();
  addNews(news.news);
  showTimes();
  if (follows) scrollTo({ top: document.documentElement.scrollHeight });
}

function showState(news) {
  const state = document.getElementById("state");
  if (state.textContent !== news.status_label) {
    document.getElementById("spoken").textContent = news.status_label;
  }
  for (const one of [state, document.getElementById("talk-state")]) {
    if (!one) continue;
    one.textContent = news.status_label;
    one.dataset.status = news.status;
  }
  document.getElementById("stop").hidden = !news.active;
  showBusy();
}

function showBusy() {
  const hint = document.getElementById("hint");
  hint.textContent = seen.active ? hint.dataset.busy : hint.dataset.idle;
  composer.querySelector(".button").disabled = seen.active;
}

// Entries whose revision is the same stay as they are: opened details, a half-written answer.
function replaceEntries(list) {
  const there = new Map([...entries.children].map((item) => [item.dataset.key, item]));
  let place = entries.firstElementChild;
  for (const one of list) {
    const old = there.get(one.key);
    there.delete(one.key);
    let item = old;
    if (!old || old.dataset.rev !== one.rev) {
      item = parse(one.html);
      if (old) {
        keepOpen(old, item);
        if (place === old) place = old.nextElementSibling;
        old.remove();
      }
    }
    if (item === place) place = place.nextElementSibling;
    else entries.insertBefore(item, place);
  }
  for (const gone of there.values()) gone.remove();
}

function parse(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  return holder.content.firstElementChild;
}

function keepOpen(old, item) {
  const was = old.querySelector("details");
  const is = item.querySelector("details");
  if (was && is) is.open = was.open;
}

function addNews(html) {
  const list = document.getElementById("news");
  const holder = document.createElement("template");
  holder.innerHTML = html;
  const last = list.lastElementChild ? Number(list.lastElementChild.dataset.seq) : 0;
  for (const item of [...holder.content.children]) {
    if (Number(item.dataset.seq) > last) list.append(item);
  }
  list.scrollTop = list.scrollHeight;
}

// --- what is being written --------------------------------------------------------------------

// Kept here as well: its place comes and goes with the entry that tells what the run does.
let written = "";

function write(delta) {
  if (!delta || delta.restarts) written = "";
  if (delta) written += delta.text;
  showWritten();
}

function showWritten() {
  const place = document.getElementById("writing");
  if (!place || place.textContent === written) return;
  place.hidden = !written;
  place.textContent = written;
}

// --- forms ------------------------------------------------------------------------------------

async function post(form, button) {
  const body = new FormData(form);
  if (button && button.name) body.set(button.name, button.value);
  const buttons = [...form.querySelectorAll("button")];
  for (const one of buttons) one.disabled = true;
  try {
    const headers = { Accept: "application/json" };
    const answer = await fetch(form.action, { method: "POST", body, headers });
    if (answer.redirected || !(answer.headers.get("content-type") || "").includes("json")) {
      location.reload();
      return;
    }
    const { key, detail } = await answer.json();
    say(detail || "");
    if (answer.ok && form === composer) {
      form.reset();
      form.elements.key.value = key;
      seen.active = true;
    }
  } catch {
    say("That did not reach the server. Please try again.");
  } finally {
    for (const one of buttons) one.disabled = false;
    showBusy();
  }
  look();
}

document.addEventListener("submit", (event) => {
  if (!event.target.hasAttribute("data-post")) return;
  event.preventDefault();
  if (event.target === composer && seen.active) say("The agent is still at work here. Wait for it, or stop it.");
  else post(event.target, event.submitter);
});

const LOST = "The connection is lost. What happens meanwhile will be shown when it is back.";

function sayLost(lost) {
  if (lost) say(LOST);
  else if (problem.textContent === LOST) say("");
}

function say(text) {
  problem.textContent = text;
  problem.hidden = !text;
}

// --- begin ------------------------------------------------------------------------------------

showBusy();
document.querySelector(".log").addEventListener("toggle", (event) => {
  const list = document.getElementById("news");
  list.scrollTop = list.scrollHeight;
  if (event.target.open) scrollTo({ top: document.documentElement.scrollHeight });
});
scrollTo({ top: document.documentElement.scrollHeight });
const look = follow({
  newsAt: page.dataset.live,
  socketAt: `/ws/threads/${page.dataset.thread}/`,
  seen,
  show,
  write,
  lost: sayLost,
  connected: (is) => { document.getElementById("connection").textContent = is ? "(live)" : ""; },
});
