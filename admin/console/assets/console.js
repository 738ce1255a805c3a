// The console works without this script. It adds live numbers, copying, selection and keyboard shortcuts.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const keep = {
    get: (name) => { try { return localStorage.getItem("luatx." + name); } catch { return null; } },
    set: (name, value) => { try { localStorage.setItem("luatx." + name, value); } catch { /* the setting is lost when the page closes */ } },
  };
  for (const element of $$("[data-js]")) element.hidden = false;

  // Tables that scroll can be focused with the keyboard.
  const reach = () => {
    for (const box of $$(".scroll")) {
      if (box.scrollWidth <= box.clientWidth) { box.removeAttribute("tabindex"); continue; }
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", $("caption", box)?.textContent || "Table");
    }
  };
  reach();
  addEventListener("resize", reach);

  // Live numbers: fetch the page again and replace its parts that have data-live.
  const pause = $("#pause");
  let paused = keep.get("paused") === "yes", timer = 0, reading = false;
  const every = () => Number($("main").dataset.every) || 0;
  const showPause = () => {
    if (!pause) return;
    pause.hidden = every() === 0;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Live: paused" : "Live: on";
  };
  const swap = (fresh) => {
    for (const old of $$("[data-live]")) {
      const next = fresh.getElementById(old.id);
      if (!next || next.outerHTML === old.outerHTML) continue;
      const focused = old.contains(document.activeElement) ? document.activeElement : null;
      const place = focused ? $$("a, button, input", old).indexOf(focused) : -1;
      const before = $$("[data-figure]", old).map((figure) => figure.textContent);
      old.replaceWith(document.importNode(next, true));
      const now = document.getElementById(next.id);
      $$("[data-figure]", now).forEach((figure, i) => { if (before[i] !== figure.textContent) figure.classList.add("fresh"); });
      reach();
      if (place >= 0) $$("a, button, input", now)[place]?.focus();
    }
    if (fresh.querySelector("main")) $("main").dataset.every = fresh.querySelector("main").dataset.every || "0";
  };
  const read = async () => {
    if (reading || paused || document.hidden || every() === 0) return;
    reading = true;
    const stale = $("#stale");
    try {
      const reply = await fetch(location.href, { headers: { Accept: "text/html", "X-Luatx-Live": "1" }, credentials: "same-origin", cache: "no-store" });
      if (!reply.ok) throw new Error(reply.status);
      swap(new DOMParser().parseFromString(await reply.text(), "text/html"));
      stale.hidden = true;
    } catch {
      stale.hidden = false; // the old numbers stay, with a warning
    }
    reading = false;
    schedule();
  };
  const schedule = () => {
    clearTimeout(timer);
    showPause();
    if (!paused && every() > 0) timer = setTimeout(read, every());
  };
  pause?.addEventListener("click", () => {
    paused = !paused;
    keep.set("paused", paused ? "yes" : "no");
    schedule();
    if (!paused) read();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) read(); });
  schedule();

  // Copying.
  for (const button of $$("[data-copy]")) {
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy), name = button.textContent;
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch { // without a clipboard, select the text instead
        getSelection().selectAllChildren(source);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = name; }, 1500);
    });
  }

  // Selection.
  const rows = () => $$("tbody tr[data-row]");
  const all = $("#all"), boxes = () => $$("tbody input[type=checkbox]");
  const updateSelection = () => {
    const n = boxes().filter((box) => box.checked).length;
    if (all) { all.checked = n > 0 && n === boxes().length; all.indeterminate = n > 0 && n < boxes().length; }
    for (const button of $$("[data-selected]")) {
      button.disabled = n === 0;
      button.textContent = button.dataset.selected.replace("selected", n > 0 ? n + " selected" : "selected");
    }
  };
  all?.addEventListener("change", () => { for (const box of boxes()) box.checked = all.checked; updateSelection(); });
  document.addEventListener("change", (event) => { if (event.target.closest("tbody")) updateSelection(); });
  if (boxes().length > 0) updateSelection();

  // A changed setting needs a new preview before it can be confirmed. The server enforces that; the button names it.
  const confirmation = $("form[data-confirm]");
  confirmation?.addEventListener("input", (event) => {
    if (!event.target.matches("[data-setting]")) return;
    const changed = $$("[data-setting]", confirmation).some((field) => field.value !== field.defaultValue);
    const button = $("button[data-confirm]", confirmation);
    button.dataset.sentence ||= button.textContent;
    button.textContent = changed ? "Show preview" : button.dataset.sentence;
  });
  confirmation?.addEventListener("submit", (event) => { // submit only once
    if (confirmation.dataset.sent) event.preventDefault();
    confirmation.dataset.sent = "yes";
  });
  addEventListener("pageshow", () => { if (confirmation) delete confirmation.dataset.sent; });

  // Keys.
  const help = $("#keys"), toggle = $("#keys-on");
  let keys = keep.get("keys") !== "off", before = "", current = -1;
  if (toggle) {
    toggle.checked = keys;
    toggle.addEventListener("change", () => { keys = toggle.checked; keep.set("keys", keys ? "on" : "off"); });
  }
  const go = (name) => { const link = $(`nav.main a[data-key="${name}"]`); if (link) location.href = link.href; };
  const move = (by) => {
    const list = rows();
    if (list.length === 0) return;
    current = Math.min(list.length - 1, Math.max(0, current + by));
    list.forEach((row, i) => row.classList.toggle("current", i === current));
    $("a", list[current])?.focus();
  };
  const press = (selector) => { const target = $(selector); if (target && !target.disabled) target.click(); };
  const acts = {
    "?": () => help.showModal(),
    "/": () => ($("#filter-text") || $("#find"))?.focus(),
    f: () => $("#find")?.focus(),
    j: () => move(1),
    k: () => move(-1),
    x: () => { const box = $("input[type=checkbox]", rows()[current] || document.createElement("tr")); if (box) box.click(); },
    o: () => $("a", rows()[current] || document.createElement("tr"))?.click(),
    n: () => press("#next"),
    p: () => press("#pause"),
    r: () => press("#rearm-all"),
    s: () => press("#rearm-selected"),
  };
  document.addEventListener("keydown", (event) => {
    if (!keys || event.ctrlKey || event.metaKey || event.altKey || help?.open) return;
    if (event.target.matches("input:not([type=checkbox]), select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const act = before === "g" ? () => go(event.key) : acts[event.key];
    before = before === "" && event.key === "g" ? "g" : "";
    if (act) { event.preventDefault(); act(); }
  });
  $("#help-link")?.addEventListener("click", (event) => { event.preventDefault(); help.showModal(); });
})();
