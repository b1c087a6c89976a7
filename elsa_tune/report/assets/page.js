// Draws the page's figures with plotly, sorts its tables, and works its legends. It fetches nothing.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const drawn = new Map();   // plot element -> its panel
  const hidden = new Map();  // chart key -> names that the reader switched off
  const style = getComputedStyle(document.documentElement);

  // Colours are written as "var:NAME": the CSS variable of that name, as it is at this moment.
  const colour = (name) => {
    if (name.endsWith("-band")) return style.getPropertyValue("--" + name.slice(0, -5)).trim() + "2e";
    return style.getPropertyValue("--" + name).trim();
  };
  const coloured = (value, field = "") => {
    if (Array.isArray(value)) return value.map((inner) => coloured(inner));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, coloured(inner, name)]));
    }
    const isName = field.endsWith("color") && typeof value === "string" && value.startsWith("var:");
    return isName ? colour(value.slice(4)) : value;
  };
  const common = () => {
    const axis = {
      gridcolor: colour("grid"), linecolor: colour("ink"), tickcolor: colour("ink"), showline: true,
      zeroline: false, automargin: true, ticks: "outside", ticklen: 4, title: { standoff: 8 },
    };
    return {
      paper_bgcolor: colour("ground"), plot_bgcolor: colour("ground"), showlegend: false, hovermode: "closest",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: colour("text") },
      margin: { l: 52, r: 14, t: 12, b: 44 }, dragmode: false, autosize: true,
      hoverlabel: { align: "left", bgcolor: colour("raised"), bordercolor: colour("line"), font: { color: colour("text") } },
      xaxis: axis, yaxis: axis,
    };
  };
  const merged = (base, own) => {
    const both = { ...base };
    for (const [name, value] of Object.entries(own)) {
      const inner = value && typeof value === "object" && !Array.isArray(value) && base[name];
      both[name] = inner ? merged(base[name], value) : value;
    }
    return both;
  };
  const options = { displayModeBar: false, responsive: true };

  const draw = (element) => {
    const chart = charts[Number(element.dataset.chart)];
    const panel = chart.panels[Number(element.dataset.panel)];
    const off = hidden.get(chart.key) || new Set();
    const data = coloured(panel.data).map((trace) => ({ ...trace, visible: !off.has(trace.name) }));
    drawn.set(element, panel);
    return Plotly.react(element, data, merged(common(), coloured(panel.layout)), options);
  };

  // A figure is drawn when it comes into sight: a report of many tasks opens at once.
  const plots = [...document.querySelectorAll(".plot")];
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watcher.unobserve(entry.target);
      if (!drawn.has(entry.target)) draw(entry.target);
    }
  }, { rootMargin: "600px" });
  plots.forEach((plot) => watcher.observe(plot));

  const redraw = () => [...drawn.keys()].forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // Paper is light, and all of it is in sight.
  addEventListener("beforeprint", () => { document.documentElement.classList.add("paper"); plots.filter((plot) => plot.offsetParent).forEach(draw); });
  addEventListener("afterprint", () => { document.documentElement.classList.remove("paper"); redraw(); });

  for (const button of document.querySelectorAll(".legend button")) {
    button.disabled = false;
    button.addEventListener("click", () => {
      const chart = charts[Number(button.dataset.chart)];
      const off = hidden.get(chart.key) || new Set();
      const shown = button.getAttribute("aria-pressed") === "true";
      if (shown) off.add(button.dataset.series); else off.delete(button.dataset.series);
      hidden.set(chart.key, off);
      button.setAttribute("aria-pressed", String(!shown));
      for (const plot of drawn.keys()) if (charts[Number(plot.dataset.chart)] === chart) draw(plot);
    });
  }

  const key = (row, column) => {
    const cell = row.cells[column];
    const value = cell.dataset.value ?? cell.textContent.trim();
    return value === "" || cell.dataset.value === undefined || Number.isNaN(Number(value)) ? value : Number(value);
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a.localeCompare(b, "en", { numeric: true });
  };
  for (const button of document.querySelectorAll("th button")) {
    button.disabled = false;
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const body = head.closest("table").tBodies[0];
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentElement.cells) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => [key(row, head.cellIndex), row]);
      rows.sort(([a], [b]) => {
        // What is not known stands last, whichever way.
        if (a === "" || b === "") return (a === "") - (b === "");
        return down ? compare(b, a) : compare(a, b);
      });
      body.append(...rows.map(([, row]) => row));
    });
  }
})();
