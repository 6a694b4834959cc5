/* The decision page: keys move the focus, Enter decides; and word that it has changed meanwhile. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const page = document.getElementById("approval");
  if (!page) return;
  const form = () => document.getElementById("approval-form");
  const yes = () => form()?.querySelector(".approval-yes");
  const edit = () => document.getElementById("approval-edit");

  const typed = () => Boolean(form() && Array.from(form().querySelectorAll("input:not([type=hidden]), textarea"))
    .some((field) => field.value !== field.defaultValue));
  const edited = () => Boolean(edit() && Array.from(edit().querySelectorAll("input, textarea"))
    .some((field) => field.value !== field.defaultValue));

  function relabel() {
    const button = yes();
    if (!button) return;
    button.dataset.plain ||= button.textContent;
    button.textContent = edited() ? button.dataset.edited : button.dataset.plain;
  }

  const acts = {
    a: () => yes()?.focus(),
    d: () => document.getElementById("id_reason")?.focus(),
    e: () => { if (edit()) { edit().open = true; edit().querySelector("input, textarea")?.focus(); } },
    c: () => document.querySelector(".approval-claim [data-key=c]")?.click(),
    n: () => document.querySelector("a[data-key=n]")?.click(),
    b: () => document.querySelector("a[data-key=b]")?.click(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") document.activeElement?.blur();
    if (window.approvalsTyping(event) || !acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  });
  page.addEventListener("input", relabel);
  page.addEventListener("submit", (event) => {
    // A second click while the first is on its way is harmless, but need not be sent.
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach((one) => delete one.dataset.sent));
  if (location.hash === "#approve") acts.a();
  if (location.hash === "#decline") acts.d();

  async function changed() {
    if (typed()) {
      document.getElementById("approval-news").hidden = false;
      return;
    }
    const answer = await fetch(location.pathname + location.search, { credentials: "same-origin" });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("approval");
    if (!fresh) return;
    page.replaceChildren(...fresh.childNodes);
    document.getElementById("approval-news").hidden = true;
  }
  window.approvalsWatch(page, changed);
});
