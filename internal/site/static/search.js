// Searches the pages. The index is a script, because pages that were opened from a folder cannot fetch one.
"use strict";
{
  const base = document.currentScript.src.slice(0, -"search.js".length);
  const box = document.querySelector("search");
  const input = box.querySelector("input");
  const results = box.querySelector("ol");
  let sections;

  const score = ({ title, heading, text }, words) => {
    let sum = 0;
    for (const word of words) {
      const found = 8 * title.toLowerCase().includes(word) + 4 * heading.toLowerCase().includes(word) + text.toLowerCase().includes(word);
      if (!found) return 0;
      sum += found;
    }
    return sum;
  };

  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    results.replaceChildren();
    if (!sections || !words.length) return;
    const found = sections.map((section) => ({ section, score: score(section, words) })).filter((f) => f.score);
    found.sort((a, b) => b.score - a.score);
    for (const { section: { address, title, heading, text } } of found.slice(0, 20)) {
      const at = Math.max(0, text.toLowerCase().indexOf(words[0]) - 40);
      const link = document.createElement("a");
      link.href = base + address;
      link.append(title === heading ? title : `${title}: ${heading}`);
      const excerpt = document.createElement("p");
      excerpt.append((at ? "…" : "") + text.slice(at, at + 140));
      const item = document.createElement("li");
      item.append(link, excerpt);
      results.append(item);
    }
    if (!found.length) results.append(Object.assign(document.createElement("li"), { textContent: "No page has all these words." }));
  };

  globalThis.searchIndex = (found) => {
    sections = found;
    show();
  };
  input.addEventListener("focus", () => {
    document.head.append(Object.assign(document.createElement("script"), { src: `${base}search-index.js` }));
  }, { once: true });
  input.addEventListener("input", show);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== input) {
      event.preventDefault();
      input.focus();
    }
    if (event.key === "Escape") {
      input.value = "";
      show();
    }
  });
  box.hidden = false;
}
