// Sorts a table by the head that is pressed. It fetches nothing.
"use strict";
const value = (text) => {
  const number = parseFloat(text.replaceAll(",", ""));
  return Number.isNaN(number) ? text : number;
};
const compare = (a, b) => typeof a === "number" && typeof b === "number"
  ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
for (const button of document.querySelectorAll("th button")) {
  button.disabled = false;
  button.addEventListener("click", () => {
    const head = button.closest("th");
    const body = head.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].map((row) => [value(row.cells[head.cellIndex].textContent), row]);
    rows.sort(([a], [b]) => {
      // What is not known stands last, whichever way.
      if (a === "" || b === "") return (a === "") - (b === "");
      return down ? compare(b, a) : compare(a, b);
    });
    body.append(...rows.map(([, row]) => row));
  });
}
