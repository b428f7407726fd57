// Charts of numbers: the time of steps, parts of a whole, values over time, and the roofline.

// The room for the labels of an axis: the longest, such as `862.611 µs` or `1023 MiB`, has ten characters.
const LEFT = 80;
const BOTTOM = 20;

function svg(height, label, draw) {
  const node = el("svg:svg", { height, role: "img", "aria-label": label });
  const redraw = () => {
    const width = node.clientWidth || node.parentNode?.clientWidth || 800;
    node.setAttribute("viewBox", `0 0 ${width} ${height}`);
    node.replaceChildren(...draw(width, height).flat().filter(Boolean));
  };
  onResize(node, redraw);
  return el("div", { class: "chart" }, node);
}

function gridLines(unit, top, width, height) {
  return roundTicks(unit, top).flatMap((value) => {
    const y = 8 + (1 - value / top) * (height - BOTTOM - 8);
    return [
      el("svg:line", { x1: LEFT, x2: width - 6, y1: y, y2: y, stroke: "var(--line)" }),
      el("svg:text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, tickText(unit, value)),
    ];
  });
}

// The time of each step. Steps far above the median stand at the upper edge, so that the others can be told apart.
function stepsSection(section) {
  const { first, counts, low, high, windows, median } = section;
  const longest = high.reduce((most, nanos) => Math.max(most, nanos), 1);
  const regular = section.longest ?? longest;
  const cap = Math.min(longest, Math.max(3 * median, regular, 1));
  const [from, to] = [first[0], first.at(-1) + counts.at(-1)];
  const outliers = [...high.keys()].filter((index) => high[index] > regular);
  const above = [...high.keys()].filter((index) => high[index] > cap);
  const points = above.length === 1 ? "1 point is" : `${above.length} points are`;
  const clipped =
    above.length === 0
      ? null
      : el(
          "p",
          { class: "note" },
          `${points} above the chart, up to ${UNITS.time(longest)}: the triangles at its upper edge.`,
        );
  const readout = el("p", { class: "readout", role: "status" });
  const say = (index) => {
    const steps =
      counts[index] > 1 ? `steps ${first[index]} to ${first[index] + counts[index] - 1}` : `step ${first[index]}`;
    const range = high[index] > low[index] ? `${UNITS.time(low[index])} to ` : "";
    const times = median > 0 ? `, ${digits(high[index] / median)} times the median` : "";
    readout.textContent = `${steps}: ${range}${UNITS.time(high[index])}${times}`;
  };
  const label = `${to - from} steps; median ${UNITS.time(median)}; ${outliers.length} outliers`;
  const chart = svg(high.length < 4 ? 110 : 220, label, (width, height) => {
    const x = (step) => LEFT + ((step - from) / (to - from)) * (width - LEFT - 6);
    const y = (nanos) => 8 + (1 - Math.min(nanos, cap) / cap) * (height - BOTTOM - 8);
    const shades = windows.map(([start, end, window]) =>
      el(
        "svg:rect",
        {
          x: x(start),
          y: 8,
          width: Math.max(1.5, x(end + 1) - x(start)),
          height: height - BOTTOM - 8,
          fill: "var(--window)",
        },
        el("svg:title", {}, `window ${window} recorded steps ${start} to ${end}`),
      ),
    );
    const middle = (index) => x(first[index] + counts[index] / 2);
    const upper = high.map((nanos, index) => `${middle(index).toFixed(1)},${y(nanos).toFixed(1)}`);
    const lower = low.map((nanos, index) => `${middle(index).toFixed(1)},${y(nanos).toFixed(1)}`);
    const highest = above.reduce((most, index) => (most < 0 || high[index] > high[most] ? index : most), -1);
    const marks = outliers.slice(0, 200).map((index) => {
      const [cx, cy] = [middle(index), y(high[index])];
      const title = el("svg:title", {}, `step ${first[index]}: ${UNITS.time(high[index])}`);
      if (high[index] <= cap) return el("svg:circle", { cx, cy, r: 4, fill: "var(--c4)" }, title);
      const label =
        index === highest &&
        el(
          "svg:text",
          cx > width / 2 ? { x: cx - 8, y: cy + 12, "text-anchor": "end" } : { x: cx + 8, y: cy + 12 },
          UNITS.time(high[index]),
        );
      const points = `${cx},${cy - 6} ${cx - 5},${cy + 3} ${cx + 5},${cy + 3}`;
      return [el("svg:polygon", { points, class: "clipped", fill: "var(--c4)" }, title), label];
    });
    return [
      shades,
      gridLines("time", cap, width, height),
      el("svg:polygon", { points: [...upper, ...lower.reverse()].join(" "), fill: "var(--c0)", opacity: 0.35 }),
      el("svg:polyline", { points: upper.join(" "), fill: "none", stroke: "var(--c0)", "stroke-width": 1.2 }),
      high.length <= 400 &&
        upper.map((point) => {
          const [cx, cy] = point.split(",");
          return el("svg:circle", { cx, cy, r: 2, fill: "var(--c0)" });
        }),
      el("svg:line", {
        x1: LEFT,
        x2: width - 6,
        y1: y(median),
        y2: y(median),
        stroke: "var(--dim)",
        "stroke-dasharray": "4 4",
      }),
      marks.flat(),
      [[from, "start"], to - from > 2 && [Math.floor((from + to) / 2), "middle"], to - from > 1 && [to - 1, "end"]]
        .filter(Boolean)
        .map(([step, anchor]) =>
          el("svg:text", { x: x(step + 0.5), y: height - 5, "text-anchor": anchor }, `step ${step}`),
        ),
    ];
  });
  let chosen = -1;
  const under = (event) => {
    const box = chart.getBoundingClientRect();
    const at = from + ((event.clientX - box.left - LEFT) / (box.width - LEFT - 6)) * (to - from);
    const past = first.findIndex((start) => start > at);
    return past < 0 ? first.length - 1 : Math.max(0, past - 1);
  };
  // A recorded step is in the timeline. Of several in one point, the first that was recorded.
  const show = (index) => {
    const numbers = Array.from({ length: counts[index] }, (_, at) => first[index] + at);
    const recorded = numbers.find((number) => SHOW_RANGE.has(number));
    if (recorded === undefined) readout.textContent += "; it was not recorded";
    else SHOW_RANGE.step(recorded);
  };
  chart.addEventListener("pointermove", (event) => say(under(event)));
  chart.addEventListener("click", (event) => show(under(event)));
  chart.tabIndex = 0;
  chart.classList.add("clickable");
  chart.setAttribute("aria-label", "steps: arrows go from step to step, Enter shows one in the timeline");
  chart.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by) say((chosen = Math.max(0, Math.min(first.length - 1, chosen + by))));
    else if (event.key === "Enter" && chosen >= 0) show(chosen);
    else return;
    event.preventDefault();
  });
  const hint = el("p", { class: "note" }, "Click a recorded step to see it in the timeline.");
  return [chart, clipped, hint, readout].filter(Boolean);
}

// Parts of a whole, as one bar for each row, with the numbers below.
function barsSection(section) {
  const { parts, rows } = section;
  const bars = rows.map(({ label, values, note }) => {
    const total = values.reduce((sum, value) => sum + value, 0) || 1;
    const percent = (value) => (100 * value) / total;
    const said = parts.map((part, index) => `${part} ${UNITS.percent(percent(values[index]))}`);
    return [
      el("h3", {}, label),
      el(
        "div",
        { class: "stack", role: "img", "aria-label": said.join(", ") },
        values.map((value, index) =>
          el("i", {
            style: `width:${percent(value)}%;background:${color(index)}`,
            on: {
              pointermove: (event) => showTip(`${said[index]}\n${UNITS.time(value)}`, event),
              pointerleave: hideTip,
            },
          }),
        ),
      ),
      el(
        "ul",
        { class: "legend" },
        values
          .map(
            (value, index) =>
              value > 0 &&
              el(
                "li",
                {},
                el("i", { style: `background:${color(index)}` }),
                `${parts[index]} `,
                el("b", { "data-value": value }, UNITS.time(value)),
                ` ${UNITS.percent(percent(value))}`,
              ),
          )
          .filter(Boolean),
      ),
      note ? el("p", { class: "note" }, note) : null,
    ];
  });
  return bars.flat();
}

// The pixels between two edges of steps.
const EDGES = 24;

// Values over time: one line, or several that are stacked.
function seriesSection(section) {
  return section.charts.flatMap(({ title, duration, unit, top, lines, steps, note }) => {
    const sums = lines[0].values.map((_, at) => lines.reduce((sum, line) => sum + line.values[at], 0));
    const highest = top ?? Math.max(1, ...sums);
    const readout = el("p", { class: "readout", role: "status" });
    const chart = svg(130, `${title}: at most ${format(unit, Math.max(...sums))}`, (width, height) => {
      const count = sums.length;
      const x = (at) => LEFT + (at / count) * (width - LEFT - 6);
      const y = (value) => 8 + (1 - Math.min(value, highest) / highest) * (height - BOTTOM - 8);
      const below = new Array(count).fill(0);
      const areas = lines.map((line, index) => {
        const over = [];
        const under = [];
        line.values.forEach((value, at) => {
          const [from, to] = [x(at).toFixed(1), x(at + 1).toFixed(1)];
          under.push(`${from},${y(below[at]).toFixed(1)} ${to},${y(below[at]).toFixed(1)}`);
          below[at] += value;
          over.push(`${from},${y(below[at]).toFixed(1)} ${to},${y(below[at]).toFixed(1)}`);
        });
        const points = [...over, ...under.reverse().map((pair) => pair.split(" ").reverse().join(" "))].join(" ");
        return el("svg:polygon", { points, fill: color(line.color ?? index), opacity: 0.8 });
      });
      // Many steps would hide the curve behind their edges, so these are at least some pixels apart.
      const spacing = (width - LEFT - 6) / Math.max(1, steps?.length ?? 0);
      const stride = Math.max(1, Math.ceil(EDGES / spacing));
      const shown = (steps ?? []).filter((_, index) => index % stride === 0);
      const edges = shown.map(([number, start]) =>
        el(
          "svg:line",
          {
            x1: x((start / duration) * count),
            x2: x((start / duration) * count),
            y1: 8,
            y2: height - BOTTOM,
            class: "edge",
            stroke: "var(--dim)",
            "stroke-dasharray": "2 3",
          },
          el("svg:title", {}, stride > 1 ? `step ${number}; every ${stride}th is marked` : `step ${number}`),
        ),
      );
      return [
        gridLines(unit, highest, width, height),
        areas,
        edges,
        el("svg:text", { x: LEFT, y: height - 5 }, "0"),
        el("svg:text", { x: width - 6, y: height - 5, "text-anchor": "end" }, UNITS.time(duration)),
      ];
    });
    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      const part = (event.clientX - box.left - LEFT) / (box.width - LEFT - 6);
      const at = Math.max(0, Math.min(sums.length - 1, Math.floor(part * sums.length)));
      const each = lines.map((line) => `${line.name} ${format(unit, line.values[at])}`);
      const sum = lines.length > 1 ? `; together ${format(unit, sums[at])}` : "";
      readout.textContent = `after ${UNITS.time((at / sums.length) * duration)}: ${each.join(", ")}${sum}`;
    });
    const legend =
      lines.length > 1
        ? el(
            "ul",
            { class: "legend" },
            lines.map((line, index) =>
              el("li", {}, el("i", { style: `background:${color(line.color ?? index)}` }), line.name),
            ),
          )
        : null;
    return [el("h3", {}, title), note ? el("p", { class: "note" }, note) : null, chart, legend, readout];
  });
}

// Operations a second by operations a byte, both logarithmic, below the limits of the GPU.
function rooflineSection(section) {
  const { roofs, bandwidth, points } = section;
  const decade = (number) => Math.log10(Math.max(number, 1e-3));
  const highest = Math.ceil(
    0.2 + decade(Math.max(...roofs.map(([, flops]) => flops), ...points.map((point) => point[2]))),
  );
  const lowest = Math.min(Math.floor(decade(Math.min(...points.map((point) => point[2])))), highest - 3);
  const [left, right] = [
    Math.min(-1, Math.floor(decade(Math.min(...points.map((point) => point[1]))))),
    Math.max(3, Math.ceil(decade(Math.max(...points.map((point) => point[1]))))),
  ];
  const longest = Math.max(...points.map((point) => point[3]));
  const kinds = ["bytes stated by fields", "bytes measured by hardware counters"];
  const legend = el(
    "ul",
    { class: "legend" },
    kinds.map((kind, index) => el("li", {}, el("i", { style: `background:${color(index)}` }), kind)),
  );
  return [
    svg(320, `${points.length} spans in the roofline model`, (width, height) => {
      const x = (intensity) => LEFT + ((decade(intensity) - left) / (right - left)) * (width - LEFT - 10);
      const y = (rate) => 8 + ((highest - decade(rate)) / (highest - lowest)) * (height - BOTTOM - 8);
      const lines = roofs.flatMap(([label, flops]) => {
        const knee = flops / bandwidth;
        const start = 10 ** left;
        return [
          el("svg:polyline", {
            fill: "none",
            stroke: "var(--dim)",
            points: [
              [start, bandwidth * start],
              [knee, flops],
              [10 ** right, flops],
            ]
              .map(([a, b]) => `${x(a)},${y(b)}`)
              .join(" "),
          }),
          el(
            "svg:text",
            { x: width - 12, y: y(flops) - 4, "text-anchor": "end" },
            `${label}: ${UNITS.rate(flops)}FLOP/s`,
          ),
        ];
      });
      const marks = points.map(([name, intensity, rate, nanos, percent, measured]) => {
        const ofPeak = percent === null ? "" : `, ${digits(percent)} % of what the GPU can do`;
        const text =
          `${DATA.names[name]}\n${UNITS.flopRate(rate)}, ${digits(intensity)} FLOP a byte\n` +
          `${kinds[measured]}\n` +
          `${UNITS.time(nanos)} on the GPU${ofPeak}`;
        const shade = color(measured);
        return el(
          "svg:circle",
          {
            cx: x(intensity),
            cy: y(rate),
            r: 4 + 10 * Math.sqrt(nanos / longest),
            tabindex: 0,
            fill: shade,
            "fill-opacity": 0.6,
            stroke: shade,
            on: { pointermove: (event) => showTip(text, event), pointerleave: hideTip },
          },
          el("svg:title", {}, text),
        );
      });
      const ticks = Array.from({ length: right - left + 1 }, (_, index) =>
        el(
          "svg:text",
          { x: x(10 ** (left + index)), y: height - 5, "text-anchor": left + index === right ? "end" : "middle" },
          `${10 ** (left + index)}`,
        ),
      );
      const rates = Array.from({ length: highest - lowest + 1 }, (_, index) =>
        el(
          "svg:text",
          { x: LEFT - 6, y: y(10 ** (lowest + index)) + 4, "text-anchor": "end" },
          UNITS.rate(10 ** (lowest + index)),
        ),
      );
      return [lines, marks, ticks, rates];
    }),
    points.some((point) => point[5]) ? legend : null,
    el("p", { class: "note" }, "FLOP a second (up) by FLOP a byte (right). A large point took long on the GPU."),
  ];
}

// One value for each label, joined by a line where neighbours both have one.
function linesSection(section) {
  const { labels, charts, marked } = section;
  return charts.flatMap(({ title, unit, values }, index) => {
    const known = values.filter((value) => value !== null);
    const top = Math.max(...known, Number.MIN_VALUE);
    const said = labels.map((label, at) => `${label}: ${format(unit, values[at])}`);
    const chart = svg(150, `${title}. ${said.join(", ")}`, (width, height) => {
      const x = (at) => LEFT + ((at + 0.5) / labels.length) * (width - LEFT - 6);
      const y = (value) => 8 + (1 - value / top) * (height - BOTTOM - 8);
      const lines = values.slice(1).map((value, before) => {
        const ends = [values[before], value];
        if (ends.includes(null)) return null;
        const [y1, y2] = ends.map(y);
        const place = { x1: x(before), x2: x(before + 1), y1, y2 };
        return el("svg:line", { ...place, stroke: color(index), "stroke-width": 1.5 });
      });
      const points = values.map((value, at) => {
        if (value === null) return null;
        const place = { cx: x(at), cy: y(value), r: at === marked ? 6 : 4, fill: color(index) };
        const tips = { pointermove: (event) => showTip(said[at], event), pointerleave: hideTip };
        return el("svg:circle", { ...place, on: tips }, el("svg:title", {}, said[at]));
      });
      const names = labels.map((label, at) =>
        el("svg:text", { x: x(at), y: height - 5, "text-anchor": "middle" }, at === marked ? `${label} (best)` : label),
      );
      return [gridLines(unit, top, width, height), lines, points, names];
    });
    return [el("h3", {}, title), chart];
  });
}
