// Draws a window as it ran. Hundreds of thousands of items are drawn lane by lane: what is narrower than a pixel is
// merged, so that a drawing costs as much as it has pixels.

const BAR = 16;
const RULER = 34;
const OVERVIEW = 26;

// The width of the labels of rows.
function labelWidth(width) {
  return width < 600 ? 64 : 118;
}

function timelineHeight({ levels }) {
  return RULER + levels.reduce((sum, shown) => sum + shown * BAR + 6, 0);
}

// The top of each row, and of each lane that is shown; a lane that is folded has none.
function timelineLayout({ window, levels }) {
  let y = RULER;
  const tops = [];
  const rows = window.rows.map((row, index) => {
    const top = y;
    row.lanes.forEach((lane, level) => (tops[lane] = level < levels[index] ? y + level * BAR : -1));
    y += levels[index] * BAR + 6;
    return { label: row.label, top, bottom: y, levels: row.lanes.length };
  });
  return { tops, rows };
}

function drawTimeline(context, width, height, view) {
  const { window, from, to, levels, mark, range, found, isSearch } = view;
  const left = labelWidth(width);
  const scale = (width - left - 4) / (to - from);
  const x = (time) => left + (time - from) * scale;
  const { tops, rows } = timelineLayout(view);
  const colors = new Map();
  const colorOf = (name) => {
    if (!colors.has(name)) colors.set(name, nameColor(DATA.names[name]));
    return colors.get(name);
  };
  const [ink, merged, accent] = ["--text", "--c0", "--c4"].map(css);
  const shade = ([start, end], variable) => {
    context.fillStyle = css(variable);
    context.fillRect(x(start), RULER, Math.max(2, x(end) - x(start)), height - RULER);
  };
  context.save();
  context.beginPath();
  context.rect(left, 0, width - left, height);
  context.clip();
  drawSteps(context, view, x, left, width, height);
  if (mark) shade(mark, "--mark");
  const style = { x, scale, left, right: width, colorOf, merged, text: isDark() ? "#fff" : "#111", alpha: 1 };
  // What is not searched for, or not of the chosen part, stays in sight, but hardly.
  const behind = found ? { ...style, alpha: 0.18, dimmed: true } : style;
  window.lanes.forEach((lane, index) => {
    if (tops[index] < 0) return;
    drawLane(context, view, lane, tops[index], null, behind);
    if (found) drawLane(context, view, lane, tops[index], found.lanes[index], { ...style, fill: isSearch && accent });
  });
  for (const item of new Set([view.chosen, view.hovered])) {
    if (item >= 0) drawChosen(context, window, item, x, tops, ink);
  }
  if (range) {
    shade(range, "--select");
    context.fillStyle = ink;
    range.forEach((time) => context.fillRect(x(time), 0, 1, height));
  }
  context.restore();
  context.fillStyle = ink;
  rows.forEach(({ label, top, levels: all }, row) => {
    const sign = all > 1 ? (levels[row] < all ? "▸ " : "▾ ") : "";
    fitText(context, sign + label, 4, top + BAR / 2, left - 6);
  });
  drawRuler(context, view, x, left, width);
}

// Draws the items of a lane, or only those in a list. What is narrower than a pixel shares one with its neighbours.
function drawLane(context, { window, from, to }, lane, y, list, style) {
  const { start, length, name, before } = window;
  const { left, right, x, scale } = style;
  const [first, end] = list ? [0, list.length] : [lane.from, lane.to];
  const last = window.firstAt(to, first, end, list);
  let at = window.firstAt(from - lane.longest, first, end, list);
  context.globalAlpha = style.alpha;
  while (at < last) {
    const item = list ? list[at] : at;
    const [starts, ends] = [x(start[item]), x(start[item] + length[item])];
    if (ends - starts >= 1) {
      at += 1;
      if (ends < left) continue;
      const shown = Math.max(starts, left - 1);
      const wide = Math.min(ends, right + 1) - shown;
      context.fillStyle = style.fill || style.colorOf(name[item]);
      context.fillRect(shown, y, wide > 3 ? wide - 0.6 : wide, BAR - 1);
      if (wide > 24 && !style.dimmed) {
        context.fillStyle = style.text;
        const inside = Math.max(starts, left);
        fitText(context, shownName(name[item]), inside + 3, y + BAR / 2, ends - inside - 4);
      }
      continue;
    }
    const pixel = Math.floor(starts);
    let next = Math.max(at + 1, window.firstAt(from + (pixel + 1 - left) / scale, at + 1, last, list));
    // The last one that starts in this pixel may be wide enough to be drawn by itself.
    const final = list ? list[next - 1] : next - 1;
    if (next - 1 > at && length[final] * scale >= 1) next -= 1;
    if (ends >= left) {
      const isMerged = next - at > 1;
      const covered = list ? 1 : (before[next] - before[at]) * scale;
      context.globalAlpha = style.alpha * (isMerged ? Math.min(1, 0.25 + 0.75 * covered) : 1);
      context.fillStyle = style.fill || (isMerged ? style.merged : style.colorOf(name[item]));
      context.fillRect(isMerged ? pixel : starts, y, 1, BAR - 1);
      context.globalAlpha = style.alpha;
    }
    at = next;
  }
  context.globalAlpha = 1;
}

// The pixels of a step, to see whether there is room for its number.
function stepWidth({ window }, x) {
  const [step] = window.steps;
  return step ? x(step[1] + step[2]) - x(step[1]) : 0;
}

// Steps alternate in shade, as long as they can be told apart.
function drawSteps(context, view, x, left, width, height) {
  if (stepWidth(view, x) < 2) return;
  const shades = ["--even", "--odd"].map(css);
  view.window.steps.forEach(([, start, length], index) => {
    const [from, to] = [x(start), x(start + length)];
    if (to < left || from > width) return;
    context.fillStyle = shades[index % 2];
    context.fillRect(from, 0, to - from, height);
  });
}

// Times from the start of the step in sight, or of the window if several are; and the numbers of steps.
function drawRuler(context, view, x, left, width) {
  const { window, from, to } = view;
  const span = to - from;
  const rough = (span * 90) / Math.max(90, width - left);
  const power = 10 ** Math.floor(Math.log10(rough));
  const tick = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
  const step = window.stepAt(from + span / 1000);
  const isInside = step !== null && span < 1.5 * step[2];
  const origin = isInside ? step[1] : 0;
  context.fillStyle = css("--dim");
  fitText(context, isInside ? `step ${step[0]}` : window.label, 4, 10, left - 6);
  for (let at = Math.ceil((from - origin) / tick) * tick; origin + at < to; at += tick) {
    const place = x(origin + at);
    context.fillRect(place, 4, 1, 12);
    if (place + 60 < width) context.fillText((at < 0 ? "−" : "") + UNITS.time(Math.abs(at)), place + 3, 10);
  }
  if (stepWidth(view, x) < 70) return;
  context.fillStyle = css("--link");
  window.steps.forEach(([number, start, length]) => {
    const shown = Math.max(left, x(start));
    if (x(start + length) - shown > 60 && shown < width) context.fillText(`step ${number}`, shown + 3, RULER - 8);
  });
}

// A frame around an item, and lines from a call to the work that it launched, or from work to its call.
function drawChosen(context, window, item, x, tops, ink) {
  const { start, lane } = window;
  const middle = (at) => tops[lane[at]] + BAR / 2;
  context.strokeStyle = ink;
  const [from, to] = [x(start[item]), x(window.end(item))];
  if (tops[lane[item]] >= 0) context.strokeRect(from, middle(item) - BAR / 2, Math.max(1, to - from), BAR - 1);
  for (const [call, work] of window.links(item, 200)) {
    if (tops[lane[call]] < 0 || tops[lane[work]] < 0) continue;
    const [x1, y1, x2, y2] = [x(window.end(call)), middle(call), x(start[work]), middle(work)];
    context.beginPath();
    context.moveTo(x1, y1);
    context.bezierCurveTo(x1 + 30, y1, x2 - 30, y2, x2, y2);
    context.stroke();
  }
}

// How busy GPUs were over the whole window, or else threads, and which part of it is shown.
function drawOverview(context, width, height, { window, from, to }) {
  const left = labelWidth(width);
  const points = Math.max(1, Math.floor(width - left - 4));
  const perPoint = window.duration / points;
  context.fillStyle = css("--c0");
  window.coverage(points).forEach((time, point) => {
    const tall = Math.min(1, time / perPoint) * (height - 4);
    context.fillRect(left + point, height - tall, 1, tall);
  });
  const x = (time) => left + time / perPoint;
  const wide = Math.max(3, x(to) - x(from));
  context.fillStyle = css("--select");
  context.fillRect(x(from), 0, wide, height);
  context.strokeStyle = css("--text");
  context.strokeRect(x(from) + 0.5, 0.5, wide - 1, height - 1);
  context.fillStyle = css("--dim");
  fitText(context, "all", 4, height / 2, left - 6);
}
