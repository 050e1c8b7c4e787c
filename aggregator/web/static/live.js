// The server sends the living parts of the page as it would render them; those that differ are put in place.
"use strict";
const link = document.getElementById("link");
const source = new EventSource(document.querySelector("meta[name=events]").content);

source.addEventListener("open", () => { link.textContent = "live"; link.className = "live"; });
source.addEventListener("error", () => { link.textContent = "connection lost, trying again"; link.className = "lost"; });
source.addEventListener("parts", (event) => {
  const fresh = new DOMParser().parseFromString(event.data, "text/html");
  for (const part of fresh.querySelectorAll("[data-live]")) {
    const shown = document.getElementById(part.id);
    if (!shown) continue;
    // What the reader has unfolded stays so.
    for (const details of part.querySelectorAll("details[id]")) {
      const before = document.getElementById(details.id);
      details.open = before !== null && before.open;
    }
    if (!shown.isEqualNode(part)) shown.replaceWith(document.adoptNode(part));
  }
});
