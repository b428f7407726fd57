// Charts of one figure by another, with a point for each label.

// The end of an axis that has room for the points: a twelfth of their range, or of the only value.
function axisRange(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = (high - low || Math.abs(high) || 1) / 12;
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

// The filled points are those that no other point beats in everything.
function scatterSection(section) {
  return section.charts.flatMap(({ x: [xTitle, xUnit], y: [yTitle, yUnit], points }, index) => {
    const [left, right] = axisRange(points.map((point) => point[1]));
    const [bottom, top] = axisRange(points.map((point) => point[2]));
    const said = points.map(
      ([label, x, y, inFront]) =>
        `${label}: ${format(yUnit, y)} ${yTitle}, ${format(xUnit, x)} ${xTitle}${inFront ? "" : " (dominated)"}`,
    );
    const chart = svg(240, `${yTitle} by ${xTitle}. ${said.join("; ")}`, (width, height) => {
      const x = (value) => LEFT + ((value - left) / (right - left)) * (width - LEFT - 6);
      const y = (value) => 8 + ((top - value) / (top - bottom)) * (height - BOTTOM - 8);
      const rows = [0, 0.5, 1].flatMap((part) => {
        const value = bottom + part * (top - bottom);
        const place = { x1: LEFT, x2: width - 6, y1: y(value), y2: y(value), stroke: "var(--line)" };
        const text = { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" };
        return [el("svg:line", place), el("svg:text", text, format(yUnit, value))];
      });
      const ticks = [0, 0.5, 1].map((part) => {
        const anchor = ["start", "middle", "end"][2 * part];
        const place = { x: LEFT + part * (width - LEFT - 6), y: height - 5, "text-anchor": anchor };
        return el("svg:text", place, format(xUnit, left + part * (right - left)));
      });
      const marks = points.flatMap(([label, atX, atY, inFront], at) => {
        const place = { cx: x(atX), cy: y(atY), r: 6, tabindex: 0, stroke: color(index), "stroke-width": 1.5 };
        const tips = { pointermove: (event) => showTip(said[at], event), pointerleave: hideTip };
        const fill = inFront ? color(index) : "none";
        const side = x(atX) > width / 2 ? [-10, "end"] : [10, "start"];
        const text = { x: x(atX) + side[0], y: y(atY) + 4, "text-anchor": side[1] };
        const shape = { ...place, fill, "pointer-events": "all", on: tips };
        const mark = el("svg:circle", shape, el("svg:title", {}, said[at]));
        return [mark, el("svg:text", text, label)];
      });
      return [rows, ticks, marks];
    });
    return [el("h3", {}, `${yTitle} (up) by ${xTitle} (right)`), chart];
  });
}
