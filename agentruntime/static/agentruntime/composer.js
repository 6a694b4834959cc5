// The box one writes in: grows with the text, sends on Enter, takes an example on a click.
"use strict";

for (const form of document.querySelectorAll("[data-composer]")) {
  const box = form.querySelector("textarea");
  const fit = () => {
    box.rows = Math.min(12, Math.max(Number(box.dataset.rows), box.value.split("\n").length));
  };
  box.dataset.rows = String(box.rows);
  box.addEventListener("input", fit);
  form.addEventListener("reset", () => setTimeout(fit));
  box.addEventListener("keydown", (event) => {
    // While letters are composed (Japanese, Chinese), Enter takes the word and does not send it.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (box.value.trim()) form.requestSubmit();
  });
  form.addEventListener("submit", () => {
    if (form.hasAttribute("data-post")) return;
    form.querySelector(".button").disabled = true;
  });
  for (const example of document.querySelectorAll("[data-message]")) {
    example.addEventListener("click", () => {
      box.value = example.dataset.message;
      form.elements.graph.value = example.dataset.graph;
      fit();
      box.focus();
    });
  }
}

// A page that the browser shows again from its memory must be usable.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});
