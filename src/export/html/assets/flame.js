// Flame graphs: the width of a frame is its time with all that it calls.

const FRAME = 18;

// With `changes`, frames are coloured by how much longer (red) or shorter (blue) they took.
function flameSection(section) {
  const { parents, names, values, changes, unit } = section;
  const count = parents.length;
  const totals = [...values];
  const children = Array.from({ length: count }, () => []);
  const roots = [];
  const depth = new Array(count).fill(0);
  parents.forEach((parent, index) => {
    (parent < 0 ? roots : children[parent]).push(index);
    if (parent >= 0) depth[index] = depth[parent] + 1;
  });
  for (let index = count - 1; index >= 0; index--) if (parents[index] >= 0) totals[parents[index]] += totals[index];
  const byTime = (a, b) => totals[b] - totals[a];
  roots.sort(byTime);
  children.forEach((list) => list.sort(byTime));
  const whole = roots.reduce((sum, root) => sum + totals[root], 0);
  const state = { zoom: -1, chosen: -1, query: "" };
  const readout = el("p", { class: "readout", role: "status" });
  const found = el("span", { class: "dim", role: "status" });
  let frames = [];

  // The frames that are wide enough to be seen, from the zoomed one on, below those that call it.
  function layout(width) {
    frames = [];
    const callers = [];
    for (let at = state.zoom; at >= 0; at = parents[at]) callers.unshift(at);
    callers.slice(0, -1).forEach((frame, level) => frames.push({ frame, x: 0, width, level }));
    const place = (list, x, scale, level) =>
      list.forEach((frame) => {
        const wide = totals[frame] * scale;
        if (wide >= 0.4) {
          frames.push({ frame, x, width: wide, level });
          place(children[frame], x, scale, level + 1);
        }
        x += wide;
      });
    if (state.zoom < 0) place(roots, 0, width / (whole || 1), 0);
    else place([state.zoom], 0, width / (totals[state.zoom] || 1), callers.length - 1);
  }

  const text = (frame) =>
    `${DATA.names[names[frame]]}: ${format(unit, totals[frame])}` +
    ` (${UNITS.percent((100 * totals[frame]) / (whole || 1))}), ${format(unit, values[frame])} itself` +
    (changes ? `, ${UNITS.change(changes[frame])}` : "");
  const isFound = (frame) => state.query !== "" && isNameWith(names[frame], state.query);
  const mostChange = changes ? Math.max(1, ...changes.map(Math.abs)) : 1;
  const fill = (frame) => {
    if (state.query !== "") return isFound(frame) ? css("--c4") : nameColor(DATA.names[names[frame]], true);
    if (!changes) return nameColor(DATA.names[names[frame]]);
    const strength = Math.sqrt(Math.abs(changes[frame]) / mostChange);
    return `hsl(${changes[frame] > 0 ? 0 : 215} ${Math.round(75 * strength)}% ${isDark() ? 38 : 75}%)`;
  };
  const tallest = Math.min(200, 1 + depth.reduce((most, level) => Math.max(most, level), 0));
  const node = canvas(tallest * FRAME + 2, `${section.title}: ${count} frames`, (context, width) => {
    layout(width);
    for (const { frame, x, width: wide, level } of frames) {
      context.fillStyle = fill(frame);
      context.fillRect(x, level * FRAME, Math.max(0.5, wide - 0.6), FRAME - 1);
      if (frame === state.chosen) {
        context.strokeStyle = css("--text");
        context.strokeRect(x + 0.5, level * FRAME + 0.5, Math.max(1, wide - 1.6), FRAME - 2);
      }
      context.fillStyle = isDark() ? "#fff" : "#111";
      fitText(context, shownName(names[frame]), x + 4, level * FRAME + FRAME / 2, wide - 6);
    }
  });
  const under = (event) => {
    const box = node.getBoundingClientRect();
    const [x, level] = [event.clientX - box.left, Math.floor((event.clientY - box.top) / FRAME)];
    return frames.find((frame) => frame.level === level && x >= frame.x && x < frame.x + frame.width)?.frame ?? -1;
  };
  const choose = (frame) => {
    state.chosen = frame;
    readout.textContent = frame < 0 ? "" : text(frame);
    node.redraw();
  };
  const zoom = (frame) => {
    state.zoom = frame;
    choose(frame);
  };
  node.addEventListener("pointermove", (event) => {
    const frame = under(event);
    if (frame >= 0) showTip(text(frame), event);
    else hideTip();
  });
  node.addEventListener("pointerleave", hideTip);
  node.addEventListener("click", (event) => zoom(under(event)));
  node.addEventListener("keydown", (event) => {
    const chosen = state.chosen;
    const siblings = chosen < 0 || parents[chosen] < 0 ? roots : children[parents[chosen]];
    const move = {
      ArrowUp: () => (chosen < 0 || parents[chosen] < 0 ? chosen : parents[chosen]),
      ArrowDown: () => (chosen < 0 ? roots[0] : children[chosen][0]) ?? chosen,
      ArrowLeft: () => siblings[siblings.indexOf(chosen) - 1] ?? chosen,
      ArrowRight: () => siblings[siblings.indexOf(chosen) + 1] ?? chosen,
    }[event.key];
    if (move) choose(move());
    else if (event.key === "Enter") zoom(chosen);
    else if (event.key === "Escape") zoom(-1);
    else return;
    event.preventDefault();
  });
  const search = el("input", {
    type: "search",
    placeholder: "search (/)",
    "aria-label": `search ${section.title}`,
    on: {
      input: () => {
        state.query = search.value.toLowerCase();
        // A frame inside one that is found counts with that one.
        const inside = (frame) => frame >= 0 && (isFound(frame) || inside(parents[frame]));
        const time = [...totals.keys()]
          .filter((frame) => isFound(frame) && !inside(parents[frame]))
          .reduce((sum, frame) => sum + totals[frame], 0);
        found.textContent =
          state.query === "" ? "" : `${format(unit, time)}, ${UNITS.percent((100 * time) / (whole || 1))}`;
        node.redraw();
      },
    },
  });
  const reset = el("button", { type: "button", on: { click: () => zoom(-1) } }, "whole");
  return [el("div", { class: "tools" }, search, reset, found), el("div", { class: "chart" }, node), readout];
}
