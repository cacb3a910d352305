// Live updates: the server says that something changed, the page fetches itself and swaps its live parts.
// A part in which somebody is typing or confirming is left alone until they are done.
"use strict";
const busy = (part) => part.contains(document.activeElement) && document.activeElement.matches("input, summary, button") || part.querySelector("details[open]");
let pending = false;
async function refresh() {
  if (pending || document.hidden) return;
  pending = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(part.id);
      if (fresh && !busy(part) && fresh.innerHTML !== part.innerHTML) part.innerHTML = fresh.innerHTML;
    }
  } finally { pending = false; }
}
if (document.querySelector("[data-live]")) {
  const source = new EventSource("/live");
  source.onmessage = refresh;
  document.addEventListener("visibilitychange", refresh);
}
