/* Goes on with the next step of a long list by itself, keeping what is on the page already. */
"use strict";

document.addEventListener("DOMContentLoaded", async () => {
  const results = document.getElementById("bulk-results");
  let form = document.getElementById("approval-bulk-next");
  while (form && results) {
    const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), credentials: "same-origin" });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const id of ["bulk-done", "bulk-failed", "bulk-left"]) {
      document.getElementById(id).textContent = fresh.getElementById(id).textContent;
    }
    results.append(...fresh.getElementById("bulk-results").children);
    const next = fresh.getElementById("approval-bulk-next");
    if (next) form.replaceWith(next); else form.remove();
    form = next;
  }
});
