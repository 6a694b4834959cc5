/* Tells a page when what it shows has changed: by a socket where there is one, by a look every few
   seconds where there is none. It only ever asks; nothing is decided from here. */
"use strict";

window.approvalsWatch = function (element, changed) {
  const POLL_MS = 3000, SLOW_POLL_MS = 15000, RETRY_MS = 10000;
  let stamp = element.dataset.stamp, socket = null, connected = false, timer = null, busy = false;

  async function look() {
    clearTimeout(timer);
    if (!document.hidden && !busy) {
      busy = true;
      try {
        const answer = await fetch(element.dataset.pulse, { headers: { Accept: "application/json" }, credentials: "same-origin" });
        if (answer.ok) {
          const pulse = await answer.json();
          mark(true);
          if (pulse.stamp !== stamp) {
            stamp = pulse.stamp;
            await changed(pulse);
          }
        } else {
          mark(false);
        }
      } catch (error) {
        mark(false);
      }
      busy = false;
    }
    timer = setTimeout(look, connected ? SLOW_POLL_MS : POLL_MS);
  }

  function mark(on) {
    const told = document.querySelector(".approval-live");
    if (told && told.dataset.live !== (on ? "on" : "off")) {
      told.dataset.live = on ? "on" : "off";
      told.hidden = on;
    }
  }

  function connect() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    try {
      socket = new WebSocket(scheme + "//" + location.host + element.dataset.socket);
    } catch (error) {
      return;
    }
    socket.onopen = () => { connected = true; };
    socket.onmessage = () => look();
    socket.onclose = (event) => {
      connected = false;
      if (event.code < 4400 || event.code > 4499) setTimeout(connect, RETRY_MS);
    };
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
  mark(true);
  connect();
  timer = setTimeout(look, POLL_MS);
};

window.approvalsTyping = function (event) {
  const at = event.target;
  return event.ctrlKey || event.metaKey || event.altKey || at.isContentEditable ||
    /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName) && at.type !== "checkbox";
};
