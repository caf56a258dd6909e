// Sorting by column, and copying of commands. The pages are complete without this file.
"use strict";

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function key(row, column) {
  const cell = row.cells[column];
  const text = cell.dataset.sort ?? cell.textContent.trim();
  const number = Number(text);
  return text === "" || text === "nan" ? null : Number.isNaN(number) ? text : number;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return collator.compare(String(a), String(b));
}

// Within each block of rows; rows without a value stay at the end in both directions.
function sort(header) {
  const table = header.closest("table");
  const column = header.cellIndex;
  const numeric = header.classList.contains("number");
  const now = header.getAttribute("aria-sort");
  const next = now === "none" ? (numeric ? "descending" : "ascending") : now === "ascending" ? "descending" : "ascending";
  for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", next);
  const sign = next === "ascending" ? 1 : -1;
  for (const body of table.tBodies) {
    const rows = [...body.rows].filter((row) => !row.classList.contains("heading") && row.cells.length > column);
    const keyed = rows.map((row, place) => ({ row, place, value: key(row, column) }));
    keyed.sort((a, b) => {
      if (a.value === null || b.value === null) return (a.value === null) - (b.value === null) || a.place - b.place;
      return sign * compare(a.value, b.value) || a.place - b.place;
    });
    body.append(...keyed.map((entry) => entry.row));
  }
}

async function copy(button) {
  const text = button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  const label = button.firstChild;
  label.textContent = "Copied";
  setTimeout(() => { label.textContent = "Copy"; }, 1600);
}

// A link to a table that is folded away unfolds it.
function unfold() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target) {
    target.closest("details")?.setAttribute("open", "");
    target.scrollIntoView();
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.classList.contains("sort")) sort(button.closest("th"));
  else if (button?.dataset.copy) copy(button);
});
addEventListener("hashchange", unfold);
addEventListener("beforeprint", () => { for (const item of document.querySelectorAll("details")) item.open = true; });
unfold();
