
// Says how old the page is, and loads it again; a page that is the last, or that nobody writes any more, says so.
"use strict";
(() => {
  const age = document.getElementById("age");
  if (!age || age.classList.contains("ended")) return;
  const [written, stale, every] = ["written", "stale", "every"].map((name) => Number(age.dataset[name]));
  let said = "";

  function span(seconds) {
    if (seconds < 120) return `${Math.round(seconds)} s`;
    return seconds < 7200 ? `${Math.round(seconds / 60)} minutes` : `${Math.round(seconds / 3600)} hours`;
  }

  function tell() {
    const seconds = Math.max(0, (Date.now() - written) / 1000), old = seconds > stale;
    const text = old
      ? `Stale: nobody has written this page for ${span(seconds)}. The figures are of then; is weft analyze --follow still running?`
      : `Up to date: written ${span(seconds)} ago.`;
    if (text !== said) age.textContent = said = text;
    age.classList.toggle("stale", old);
    document.documentElement.classList.toggle("old", old);
  }

  tell();
  setInterval(tell, 1000);
  setTimeout(() => location.reload(), 1000 * every);
})();
