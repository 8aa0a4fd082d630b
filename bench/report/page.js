
// A click on a column's head sorts by it; without scripts the tables stay as they are.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.querySelectorAll("th:not([scope=colgroup])")];
  if (!body || body.rows.length < 2) continue;
  const place = new Map();
  let at = 0;
  for (const head of table.tHead.rows[0].cells) {
    if (head.colSpan === 1) place.set(head, at++);
    else for (const inner of table.tHead.rows[1].cells) place.set(inner, at++);
  }
  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(body, heads, head, place.get(head)));
  }
}

function sort(body, heads, head, column) {
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of heads) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...body.rows].map((row) => [key(row.cells[column]), row]);
  rows.sort(([a], [b]) => compare(a, b, down));
  body.append(...rows.map(([, row]) => row));
}

function key(cell) {
  if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
  return cell.classList.contains("n") ? null : cell.textContent;
}

function compare(a, b, down) {
  if (a === null || b === null) return (a === null) - (b === null); // what is missing comes last both ways
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return down ? -order : order;
}
