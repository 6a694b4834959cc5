/* The queue: keys, and rows that follow what happens without a reload. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const summary = document.getElementById("approval-summary");
  if (!summary) return;
  let here = -1;

  const rows = () => Array.from(document.querySelectorAll("#result_list tbody tr"));
  const keyOf = (row) => row.querySelector("input.action-select")?.value || row.querySelector("th a")?.href || "";

  function go(to) {
    const all = rows();
    if (!all.length) return;
    here = Math.max(0, Math.min(all.length - 1, to));
    all.forEach((row, at) => row.classList.toggle("approval-here", at === here));
    all[here].querySelector("th a")?.focus();
    all[here].scrollIntoView({ block: "nearest" });
  }

  const open = (part) => {
    const link = rows()[here]?.querySelector("th a");
    if (link) location.href = link.href + (part || "");
  };

  document.addEventListener("keydown", (event) => {
    if (window.approvalsTyping(event)) return;
    const acts = {
      j: () => go(here + 1), k: () => go(here - 1), a: () => open("#approve"), d: () => open("#decline"),
      x: () => rows()[here]?.querySelector("input.action-select")?.click(),
      n: () => document.querySelector(".object-tools a")?.click(),
      "/": () => document.getElementById("searchbar")?.focus(),
    };
    if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
  });

  async function refresh() {
    const chosen = new Set(rows().filter((row) => row.querySelector("input.action-select")?.checked).map(keyOf));
    const place = rows()[here] && keyOf(rows()[here]);
    const answer = await fetch(location.href, { credentials: "same-origin" });
    if (!answer.ok || answer.redirected) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const body = document.querySelector("#result_list tbody"), news = fresh.querySelector("#result_list tbody");
    const told = fresh.getElementById("approval-summary");
    if (!body || !news) {
      // The list has become empty, or is no longer: the page has another shape.
      if (Boolean(body) !== Boolean(news) && !chosen.size) location.reload();
    } else {
      body.replaceWith(news);
      rows().forEach((row) => {
        const box = row.querySelector("input.action-select");
        if (box && chosen.has(keyOf(row))) { box.checked = true; row.classList.add("selected"); }
      });
      here = place ? rows().findIndex((row) => keyOf(row) === place) : here;
      rows()[here]?.classList.add("approval-here");
      const count = document.querySelector(".paginator"), counted = fresh.querySelector(".paginator");
      if (count && counted) count.replaceWith(counted);
    }
    if (told) { summary.replaceChildren(...told.childNodes); summary.querySelector(".approval-live")?.setAttribute("hidden", ""); }
  }

  window.approvalsWatch(summary, refresh);
});
