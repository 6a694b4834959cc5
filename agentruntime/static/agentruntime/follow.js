// Follows what has stored events: asks for what is new after the last one that was seen, at once
// when the socket tells of one, otherwise every second or so. `seen` holds `seq` and `active`, which
// `show(news)` moves on. Gives back the function that asks now.
"use strict";

const BUSY_MS = 700;
const IDLE_MS = 4000;
const WITH_SOCKET_MS = 10000;
const BEGINNINGS = ["run.queued", "run.started", "run.resumed", "node.started"];

function follow({ newsAt, socketAt, seen, show, write, lost, connected }) {
  let timer = 0;
  let asking = false;
  let askAgain = false;
  let socket = null;
  let socketPause = 500;

  async function look() {
    clearTimeout(timer);
    if (asking) {
      askAgain = true;
      return;
    }
    asking = true;
    try {
      const headers = { Accept: "application/json" };
      const answer = await fetch(`${newsAt}?after=${seen.seq}`, { headers });
      // Logged out, no longer allowed, or deleted.
      if (answer.redirected || answer.status === 403 || answer.status === 404) location.reload();
      else if (answer.ok) show(await answer.json());
      lost(!answer.ok);
    } catch {
      lost(true);
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

  function connect() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    socket = new WebSocket(`${scheme}//${location.host}${socketAt}?after=${seen.seq}`);
    socket.addEventListener("open", () => {
      socketPause = 500;
      connected(true);
    });
    socket.addEventListener("message", (event) => {
      const news = JSON.parse(event.data);
      if (news.type === "message.delta") {
        if (typeof news.data?.text === "string") write(news.data);
        return;
      }
      if (BEGINNINGS.includes(news.type)) write(null); // what was written before does not count
      if (news.seq > seen.seq) look();
    });
    socket.addEventListener("close", (event) => {
      connected(false);
      // Not allowed, or gone: asking goes on without it and will find out why.
      if ([4401, 4403, 4404].includes(event.code)) return;
      socketPause = Math.min(socketPause * 2, 30000);
      setTimeout(connect, socketPause * (0.5 + Math.random()));
      look();
    });
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) look();
  });
  connect();
  look();
  return look;
}
