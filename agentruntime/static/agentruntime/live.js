// Keeps a conversation's page up to date: asks for what is new after the last event it has seen,
// at once when the socket tells of one, otherwise every second or so. What comes is HTML that the
// server has escaped; text that is still being written comes as text and is shown as such.
"use strict";

const page = document.getElementById("thread");
const entries = document.getElementById("entries");
const problem = document.getElementById("problem");
const composer = document.getElementById("composer");
const BUSY_MS = 700;
const IDLE_MS = 4000;
const WITH_SOCKET_MS = 10000;

const seen = { seq: Number(page.dataset.seq), active: page.dataset.active === "yes" };
let timer = 0;
let asking = false;
let askAgain = false;
let socket = null;
let socketPause = 500;

// --- what is new ------------------------------------------------------------------------------

async function look() {
  clearTimeout(timer);
  if (asking) {
    askAgain = true;
    return;
  }
  asking = true;
  try {
    const url = `${page.dataset.live}?after=${seen.seq}`;
    const answer = await fetch(url, { headers: { Accept: "application/json" } });
    if (answer.redirected || answer.status === 404) location.reload(); // logged out, or deleted
    else if (answer.ok) show(await answer.json());
    sayLost(!answer.ok);
  } catch {
    sayLost(true);
  } finally {
    asking = false;
    timer = setTimeout(look, askAgain ? 0 : pause());
    askAgain = false;
  }
}

function pause() {
  if (socket && socket.readyState === WebSocket.OPEN) return WITH_SOCKET_MS;
  return seen.active ? BUSY_MS : IDLE_MS;
}

function show(news) {
  if (news.seq === seen.seq || !news.entries) return;
  const follows = innerHeight + scrollY > document.documentElement.scrollHeight - 120;
  seen.seq = news.seq;
  seen.active = news.active;
  showState(news);
  replaceEntries(news.entries);
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

// --- the socket -------------------------------------------------------------------------------

function connect() {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  socket = new WebSocket(
    `${scheme}//${location.host}/ws/threads/${page.dataset.thread}/?after=${seen.seq}`,
  );
  socket.addEventListener("open", () => {
    socketPause = 500;
    document.getElementById("connection").textContent = "(live)";
  });
  socket.addEventListener("message", (event) => {
    const news = JSON.parse(event.data);
    if (news.type === "message.delta") write(news);
    else if (news.type === "node.started") unwrite(); // begun anew: what was written does not count
    if (news.type === "message.delta") return;
    if (news.seq > seen.seq) look();
  });
  socket.addEventListener("close", (event) => {
    document.getElementById("connection").textContent = "";
    // Not allowed, or gone: asking goes on without it and will find out why.
    if ([4401, 4403, 4404].includes(event.code)) return;
    socketPause = Math.min(socketPause * 2, 30000);
    setTimeout(connect, socketPause * (0.5 + Math.random()));
    look();
  });
}

function unwrite() {
  document.getElementById("writing")?.replaceChildren();
}

function write(news) {
  const place = document.getElementById("writing");
  if (!place || typeof news.data?.text !== "string") return;
  place.hidden = false;
  place.append(news.data.text);
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
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) look();
});
scrollTo({ top: document.documentElement.scrollHeight });
connect();
look();
