// One step as it ran: spans and calls of threads above, GPU work of streams below.

const BAR = 16;
const LABEL = 118;

function timelineSection(section) {
  const { steps } = section;
  const lines = steps.map(readStep);
  const state = { step: 0, from: 0, to: lines[0].whole, chosen: -1, hovered: -1, mark: null };
  const readout = el("p", { class: "readout", role: "status" });
  const step = () => lines[state.step];
  const tall = () => step().rows.reduce((sum, row) => sum + row.levels * BAR + 6, 0) + BOTTOM;
  const text = (item) => {
    const { names, start, duration, rows, row, link } = step();
    const from = link[item] >= 0 ? `; launched by ${DATA.names[names[link[item]]]}` : "";
    return (
      `${DATA.names[names[item]]}: ${UNITS.time(duration[item])}, ${UNITS.time(start[item])} after the start,` +
      ` on ${rows[row[item]].label}${from}`
    );
  };

  const node = canvas(tall, section.title, (context, width, height) => {
    const { rows, row, level, start, duration, names, link, drawn } = step();
    const scale = (width - LABEL - 4) / (state.to - state.from);
    const x = (time) => LABEL + (time - state.from) * scale;
    if (state.mark) {
      context.fillStyle = css("--mark");
      context.fillRect(x(state.mark[0]), 0, Math.max(2, x(state.mark[1]) - x(state.mark[0])), height - BOTTOM);
    }
    context.save();
    context.beginPath();
    context.rect(LABEL, 0, width - LABEL, height);
    context.clip();
    const dark = isDark();
    // The last pixel that is filled on each line: what is narrower than a pixel is drawn once.
    drawn.clear();
    for (let item = 0; item < start.length; item++) {
      const [left, right] = [x(start[item]), x(start[item] + duration[item])];
      const y = rows[row[item]].y + level[item] * BAR;
      if (right < LABEL || left > width || (right <= (drawn.get(y) ?? -1) && item !== state.chosen)) continue;
      const wide = Math.max(0.8, right - left);
      drawn.set(y, left + wide);
      context.fillStyle = nameColor(DATA.names[names[item]]);
      context.fillRect(left, y, wide, BAR - 1);
      if (wide > 24) {
        context.fillStyle = dark ? "#fff" : "#111";
        const shown = Math.max(left, LABEL);
        fitText(context, DATA.names[names[item]], shown + 3, y + BAR / 2, right - shown - 4);
      }
    }
    for (const item of new Set([state.chosen, state.hovered])) if (item >= 0) arrows(context, item, x);
    context.restore();
    context.fillStyle = css("--text");
    rows.forEach(({ label, y }) => fitText(context, label, 4, y + BAR / 2, LABEL - 6));
    context.fillStyle = css("--dim");
    [0, 0.5, 1].forEach((part) => {
      context.textAlign = ["left", "center", "right"][part * 2];
      context.fillText(
        UNITS.time(state.from + part * (state.to - state.from)),
        LABEL + part * (width - LABEL - 4),
        height - 9,
      );
    });
    context.textAlign = "left";
  });

  // From a call to the work that it launched, and from work back to its call.
  function arrows(context, item, x) {
    const { rows, row, level, start, duration, link, linked } = step();
    const middle = (at) => rows[row[at]].y + level[at] * BAR + BAR / 2;
    context.strokeStyle = css("--text");
    context.strokeRect(
      x(start[item]),
      middle(item) - BAR / 2,
      Math.max(1, x(start[item] + duration[item]) - x(start[item])),
      BAR - 1,
    );
    const pairs =
      link[item] >= 0 ? [[link[item], item]] : (linked.get(item) ?? []).slice(0, 200).map((work) => [item, work]);
    for (const [call, work] of pairs) {
      const [x1, y1, x2, y2] = [x(start[call] + duration[call]), middle(call), x(start[work]), middle(work)];
      context.beginPath();
      context.moveTo(x1, y1);
      context.bezierCurveTo(x1 + 30, y1, x2 - 30, y2, x2, y2);
      context.stroke();
    }
  }

  const under = (event) => {
    const box = node.getBoundingClientRect();
    const { rows, row, level, start, duration } = step();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    const perPixel = (state.to - state.from) / (box.width - LABEL - 4);
    const time = state.from + (px - LABEL) * perPixel;
    let best = -1;
    for (let item = 0; item < start.length; item++) {
      const y = rows[row[item]].y + level[item] * BAR;
      if (py < y || py >= y + BAR || time < start[item] - perPixel || time > start[item] + duration[item] + perPixel)
        continue;
      if (best < 0 || duration[item] < duration[best]) best = item;
    }
    return best;
  };
  function look(from, to) {
    const whole = step().whole;
    const length = Math.min(whole, Math.max(100, to - from));
    state.from = Math.max(0, Math.min(whole - length, from));
    state.to = state.from + length;
    node.redraw();
  }
  const zoom = (factor, around) =>
    look(around - (around - state.from) * factor, around + (state.to - around) * factor);
  const middle = () => (state.from + state.to) / 2;
  const choose = (item) => {
    state.chosen = item;
    readout.textContent = item < 0 ? "" : text(item);
    node.redraw();
  };
  let drag = null;
  node.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== node) return;
      const box = node.getBoundingClientRect();
      const around =
        state.from + ((event.clientX - box.left - LABEL) / (box.width - LABEL - 4)) * (state.to - state.from);
      zoom(event.deltaY > 0 ? 1.25 : 0.8, around);
      event.preventDefault();
    },
    { passive: false },
  );
  node.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, from: state.from, to: state.to, moved: false };
  });
  addEventListener("pointerup", () => {
    drag = null;
  });
  node.addEventListener("pointermove", (event) => {
    if (drag && Math.abs(event.clientX - drag.x) > 3) {
      const moved = ((event.clientX - drag.x) / (node.clientWidth - LABEL - 4)) * (drag.to - drag.from);
      drag.moved = true;
      look(drag.from - moved, drag.to - moved);
      return;
    }
    const item = under(event);
    if (item >= 0) showTip(text(item), event);
    else hideTip();
    if (item !== state.hovered) {
      state.hovered = item;
      node.redraw();
    }
  });
  node.addEventListener("pointerleave", hideTip);
  node.addEventListener("click", (event) => choose(under(event)));
  node.addEventListener("dblclick", (event) => {
    const item = under(event);
    if (item >= 0)
      look(step().start[item] - step().duration[item] * 0.05, step().start[item] + step().duration[item] * 1.05);
  });
  node.addEventListener("keydown", (event) => {
    const length = state.to - state.from;
    const next = (by) => {
      const { row, level } = step();
      let item = state.chosen + by;
      while (
        item >= 0 &&
        item < row.length &&
        state.chosen >= 0 &&
        (row[item] !== row[state.chosen] || level[item] !== level[state.chosen])
      )
        item += by;
      if (item >= 0 && item < row.length) choose(item);
    };
    const action = {
      w: () => zoom(0.7, middle()),
      s: () => zoom(1.4, middle()),
      "+": () => zoom(0.7, middle()),
      "-": () => zoom(1.4, middle()),
      a: () => look(state.from - length / 5, state.to - length / 5),
      d: () => look(state.from + length / 5, state.to + length / 5),
      ArrowLeft: () => next(-1),
      ArrowRight: () => next(1),
      Escape: () => look(0, step().whole),
    }[event.key];
    if (!action) return;
    action();
    event.preventDefault();
  });
  const note = el("p", { class: "note" });
  const select = el(
    "select",
    { "aria-label": "step", on: { change: () => show(Number(select.value), null) } },
    steps.map(({ label }, index) => el("option", { value: index }, label)),
  );
  function show(index, mark) {
    Object.assign(state, { step: index, chosen: -1, hovered: -1, mark });
    select.value = index;
    note.textContent = steps[index].note ?? "";
    readout.textContent = "";
    const [from, to] = mark
      ? [mark[0] - (mark[1] - mark[0]) * 2, mark[1] + (mark[1] - mark[0]) * 2]
      : [0, step().whole];
    look(from, to);
  }
  SHOW_RANGE.has = (number) => steps.some((step) => step.number === number);
  SHOW_RANGE.show = (number, from, to) => {
    const index = steps.findIndex((step) => step.number === number);
    if (index < 0) return;
    show(index, [from, to]);
    node.scrollIntoView({ block: "center" });
    node.focus({ preventScroll: true });
  };
  const tools = [
    ["zoom in (w)", () => zoom(0.5, middle())],
    ["zoom out (s)", () => zoom(2, middle())],
    [
      "whole step (Esc)",
      () => {
        state.mark = null;
        look(0, step().whole);
      },
    ],
  ].map(([label, action]) => el("button", { type: "button", on: { click: action } }, label));
  note.textContent = steps[0].note ?? "";
  return [
    el("div", { class: "tools" }, select, tools),
    note,
    el("div", { class: "chart" }, node),
    readout,
    el(
      "p",
      { class: "note" },
      "Drag to move; Ctrl and the wheel, or w and s, zoom; a and d move; double-click looks at one item.",
    ),
  ];
}

// Shows a range of a step in the timeline, if the step is there.
const SHOW_RANGE = { has: () => false, show: () => {} };

// Starts are stored as differences; rows are laid out one below the other.
function readStep({ duration, rows, row, level, start, length, name, link }) {
  let [time, y] = [0, 2];
  const linked = new Map();
  link.forEach((call, work) => {
    if (call >= 0) linked.set(call, [...(linked.get(call) ?? []), work]);
  });
  return {
    row,
    level,
    link,
    linked,
    names: name,
    drawn: new Map(),
    start: start.map((difference) => (time += difference)),
    duration: length,
    rows: rows.map(([label, levels]) => {
      const placed = { label, levels, y };
      y += levels * BAR + 6;
      return placed;
    }),
    whole: duration,
  };
}
