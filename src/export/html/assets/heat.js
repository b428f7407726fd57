// Values by row and column as shades, such as the time that ranks wait in each step.

function heatSection({ label, rows, columns, values, unit }) {
  const most = values.flat().reduce((most, value) => Math.max(most, value), 0) || 1;
  const size = Math.max(3, Math.min(20, Math.floor(640 / rows.length)));
  const readout = el("p", { class: "readout", role: "status" });
  const summary = `${label}: ${rows.length} rows, ${columns.length} columns, at most ${format(unit, most)}`;
  const chart = svg(size * rows.length + BOTTOM + 8, summary, (width, height) => {
    const x = (at) => LEFT + (at / columns.length) * (width - LEFT - 6);
    const cells = values.flatMap((row, index) =>
      row.map((value, at) =>
        el("svg:rect", {
          class: "cell",
          x: x(at).toFixed(1),
          y: 8 + size * index,
          width: Math.max(0.5, x(at + 1) - x(at) - (columns.length < 200 ? 1 : 0)).toFixed(1),
          height: size - (size > 6 ? 1 : 0),
          fill: value === null ? "none" : "var(--c4)",
          opacity: (0.06 + 0.94 * ((value ?? 0) / most)).toFixed(3),
        }),
      ),
    );
    // Labels that would overlap are left out.
    const stride = Math.ceil(14 / size);
    const names = rows.map(
      (name, index) =>
        index % stride === 0 &&
        el("svg:text", { x: LEFT - 6, y: 8 + size * (index + 0.5) + 4, "text-anchor": "end" }, name),
    );
    const last = columns.length - 1;
    const ends = [[0, "start"], last > 0 && [last, "end"]].filter(Boolean).map(([at, anchor]) => {
      const edge = anchor === "end" ? x(at + 1) : x(at);
      return el("svg:text", { x: edge, y: height - 5, "text-anchor": anchor }, columns[at]);
    });
    return [cells, names, ends];
  });
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const at = Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT - 6)) * columns.length);
    const row = Math.floor((event.clientY - box.top - 8) / size);
    const value = values[row]?.[at];
    if (value === undefined) return;
    readout.textContent = `${rows[row]}, ${columns[at]}: ${value === null ? "not recorded" : format(unit, value)}`;
  });
  return [chart, readout];
}
