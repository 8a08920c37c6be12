"use strict";
const people = document.getElementById("people"), body = people.tBodies[0], hint = document.getElementById("hint");
const heads = [...people.tHead.rows[0].cells], rows = [...body.rows];
const search = document.getElementById("search"), shown = document.getElementById("shown");
const compare = new Intl.Collator("en", { numeric: true }).compare;
const cell = (row, place) => row.cells[place].dataset.value ?? row.cells[place].textContent.trim();

heads.forEach((head, place) => head.querySelector("button")?.addEventListener("click", () => {
  const down = head.getAttribute("aria-sort") === "descending" || (head.getAttribute("aria-sort") === "none" && !("number" in head.dataset));
  heads.forEach(other => other.hasAttribute("aria-sort") && other.setAttribute("aria-sort", "none"));
  head.setAttribute("aria-sort", down ? "ascending" : "descending");
  const order = "number" in head.dataset ? (a, b) => cell(a, place) - cell(b, place) : (a, b) => compare(cell(a, place), cell(b, place));
  body.append(...[...body.rows].sort((a, b) => (down ? 1 : -1) * order(a, b)));
}));

search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/);
  const found = rows.filter(row => !(row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word))));
  shown.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
});

// Text that a spreadsheet would take for a formula is written with an apostrophe before it.
const quoted = (text, isNumber) => isNumber ? text : `"${(/^[=+\-@\t\r]/.test(text) && isNaN(text) ? "'" : "") + text.replaceAll('"', '""')}"`;
function csv() {
  const names = heads.map(head => quoted(head.dataset.name, false));
  const lines = [...body.rows].filter(row => !row.hidden).map(row =>
    heads.map((head, place) => quoted(cell(row, place), "number" in head.dataset)).concat(quoted(people.dataset.time, false)).join());
  return [names.concat('"time"').join(), ...lines].join("\r\n") + "\r\n";
}
document.getElementById("download").addEventListener("click", event => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(["\ufeff", csv()], { type: "text/csv" }));
  link.download = event.target.dataset.file;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});

// Pictures tell in words what is pointed at.
document.querySelectorAll("svg g > title").forEach(title => {
  const shape = title.parentNode, text = title.textContent;
  shape.addEventListener("pointerenter", () => { hint.textContent = text; hint.hidden = false; });
  shape.addEventListener("pointermove", event => {
    hint.style.left = `${Math.min(event.pageX + 12, document.documentElement.clientWidth - hint.offsetWidth - 8)}px`;
    hint.style.top = `${event.pageY + 16}px`;
  });
  shape.addEventListener("pointerleave", () => { hint.hidden = true; });
  title.remove();
  shape.setAttribute("aria-label", text);
});
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(each => { each.open = true; }));
