// The timeline of the page: what is shown of the windows, and what pointers and keys do to it.

// The levels of a row that are shown until it is unfolded: PyTorch nests a dozen operators and calls.
const UNFOLDED = 16;

// Shows a range of a window, or a step, in the timeline.
const SHOW_RANGE = { show: () => {}, step: () => false, has: () => false };

function timelineSection(section) {
  const windows = section.windows.map((window) => new TimelineWindow(window));
  const state = {
    window: 0,
    from: 0,
    to: windows[0].duration,
    chosen: -1,
    hovered: -1,
    // The moment of a finding.
    mark: null,
    // The range that was selected.
    range: null,
    // The items that are searched for, or those of the chosen part of a step.
    found: null,
    isSearch: false,
    match: -1,
    levels: windows.map(({ counts }) => counts.map((lanes) => Math.min(UNFOLDED, lanes.length))),
    seen: false,
  };
  const readout = el("p", { class: "readout", role: "status" });
  const line = () => windows[state.window];
  const view = () => ({ ...state, window: line(), levels: state.levels[state.window] });
  const perPixel = () => (state.to - state.from) / Math.max(1, node.clientWidth - labelWidth(node.clientWidth) - 4);
  const moment = (time) => {
    const step = line().stepAt(time);
    return step
      ? `${UNITS.time(time - step[1])} after the start of step ${step[0]}`
      : `${UNITS.time(time)} after the start of the window`;
  };
  const nameOf = (item) => DATA.names[line().name[item]];
  const rowOf = (item) => line().rows[line().lanes[line().lane[item]].row];
  const text = (item) => {
    const { length, start, launcher } = line();
    const from = launcher[item] >= 0 ? `; launched by ${nameOf(launcher[item])}` : "";
    return `${nameOf(item)}: ${UNITS.time(length[item])}, ${moment(start[item])}, on ${rowOf(item).label}${from}`;
  };

  const tall = () => timelineHeight(view());
  const node = canvas(tall, section.title, (context, width, height) => {
    if (!state.seen) return;
    line().unpack();
    drawTimeline(context, width, height, view());
  });
  const overview = canvas(OVERVIEW, "the whole window, with the part that is shown", (context, width, height) => {
    if (state.seen) drawOverview(context, width, height, { ...view(), window: line().unpack() });
  });

  const timeAt = (event) => {
    const box = node.getBoundingClientRect();
    return state.from + (event.clientX - box.left - labelWidth(box.width)) * perPixel();
  };

  // The item under the pointer: the shortest, if several are as near as a pixel.
  function under(event) {
    if (!state.seen) return -1;
    const box = node.getBoundingClientRect();
    const y = event.clientY - box.top;
    const window = line().unpack();
    const { tops } = timelineLayout(view());
    const index = tops.findIndex((top) => top >= 0 && y >= top && y < top + BAR);
    if (index < 0 || event.clientX - box.left < labelWidth(box.width)) return -1;
    const [lane, time, near] = [window.lanes[index], timeAt(event), perPixel()];
    let best = -1;
    for (let item = window.firstAt(time + near, lane.from, lane.to) - 1; item >= lane.from; item--) {
      if (window.start[item] < time - near - lane.longest) break;
      if (window.end(item) < time - near) continue;
      if (best < 0 || window.length[item] < window.length[best]) best = item;
    }
    return best;
  }

  function redraw() {
    node.redraw();
    overview.redraw();
  }

  // Shows a part of the window, at least 100 ns of it.
  function look(from, to) {
    const whole = line().duration;
    const length = Math.min(whole, Math.max(100, to - from));
    state.from = Math.max(0, Math.min(whole - length, from));
    state.to = state.from + length;
    const step = line().stepAt((state.from + state.to) / 2);
    if (step && document.activeElement !== number) number.value = step[0];
    redraw();
  }
  const zoom = (factor, around) => look(around - (around - state.from) * factor, around + (state.to - around) * factor);
  const middle = () => (state.from + state.to) / 2;
  const whole = () => {
    state.mark = null;
    look(0, line().duration);
  };
  const see = () => {
    if (state.seen) return;
    state.seen = true;
    highlight();
  };
  const choose = (item) => {
    see();
    line().unpack();
    state.chosen = item;
    readout.textContent = item < 0 ? "" : text(item);
    redraw();
  };
  // Brings an item into sight, wide enough to be seen.
  const focusItem = (item) => {
    choose(item);
    const [start, length] = [line().start[item], Math.max(1, line().length[item])];
    const span = Math.min(state.to - state.from, length * 60);
    const isSeen = start >= state.from && start + length <= state.to && length / (state.to - state.from) > 0.002;
    if (!isSeen) look(start + length / 2 - span / 2, start + length / 2 + span / 2);
  };
  function showWindow(index) {
    if (index !== state.window) {
      Object.assign(state, { window: index, chosen: -1, hovered: -1, mark: null, range: null, from: 0 });
      state.to = line().duration;
      select.value = index;
      sums.replaceChildren();
      highlight();
    }
    notes.textContent = line()
      .notes.map((note) => `${note}.`)
      .join(" ");
    notes.hidden = line().notes.length === 0;
    readout.textContent = "";
  }
  function showStep(wanted) {
    const has = (window) => window.steps.findIndex((step) => step[0] === wanted);
    const index = has(line()) >= 0 ? state.window : windows.findIndex((window) => has(window) >= 0);
    if (index < 0) return false;
    see();
    showWindow(index);
    const [, start, length] = line().steps[has(line())];
    state.mark = null;
    look(start, start + length);
    number.value = wanted;
    return true;
  }

  // Names that are shown in full colour: those that are searched for, or else those of the chosen part of the step.
  function highlight() {
    const query = search.value.toLowerCase();
    state.isSearch = query !== "";
    state.match = -1;
    const names = state.isSearch
      ? new Set([...DATA.names.keys()].filter((name) => isNameWith(name, query)))
      : FILTER.names();
    state.found = names && state.seen ? line().unpack().find(names) : null;
    found.textContent = state.isSearch && state.found ? `${state.found.count} found` : "";
    redraw();
  }
  function jump(by) {
    see();
    if (!state.isSearch || !state.found) highlight();
    if (!state.isSearch || state.found.count === 0) return;
    const ordered = line().ordered(state.found);
    if (state.match < 0) {
      // The first in sight, or else the one after.
      const after = ordered.findIndex((item) => line().start[item] >= state.from);
      state.match = by > 0 ? Math.max(0, after) : (after < 0 ? ordered.length : after) - 1;
    } else state.match += by;
    state.match = (state.match + ordered.length) % ordered.length;
    focusItem(ordered[state.match]);
    found.textContent = `${state.match + 1} of ${ordered.length}`;
  }

  // The sums of the selected range, by row and name.
  const sums = el("div", { class: "sums" });
  function showSums() {
    if (!state.range) return sums.replaceChildren();
    const button = (title, action) => el("button", { type: "button", on: { click: action } }, title);
    const [from, to] = state.range;
    const actions = [button("zoom to the selection", () => look(from, to)), button("clear", () => selectRange(null))];
    sums.replaceChildren(...sumsOf(line().unpack(), from, to, moment(from), actions));
  }
  function selectRange(range) {
    state.range = range;
    showSums();
    redraw();
  }

  let drag = null;
  node.addEventListener(
    "wheel",
    (event) => {
      const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== node && !sideways) return;
      const length = state.to - state.from;
      if (sideways) {
        const by = ((event.deltaX || event.deltaY) / 600) * length;
        look(state.from + by, state.to + by);
      } else zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event));
      event.preventDefault();
    },
    { passive: false },
  );
  // Dragging selects; with Shift, the middle button or a finger it moves.
  node.addEventListener("pointerdown", (event) => {
    const box = node.getBoundingClientRect();
    if (event.clientX - box.left < labelWidth(box.width)) return toggleRow(event.clientY - box.top);
    const moves = event.shiftKey || event.button === 1 || event.pointerType === "touch";
    drag = { x: event.clientX, time: timeAt(event), from: state.from, to: state.to, moves, moved: false };
    if (event.button === 1) event.preventDefault();
  });
  addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { moves, moved } = drag;
    drag = null;
    if (moved && !moves) showSums();
    else if (!moved && event.target === node) {
      if (state.range) selectRange(null);
      choose(under(event));
    }
  });
  addEventListener("pointermove", (event) => {
    if (!drag || (!drag.moved && Math.abs(event.clientX - drag.x) <= 3)) return;
    drag.moved = true;
    hideTip();
    if (drag.moves) {
      const moved = (event.clientX - drag.x) * perPixel();
      look(drag.from - moved, drag.to - moved);
    } else {
      const now = Math.max(state.from, Math.min(state.to, timeAt(event)));
      state.range = [Math.min(drag.time, now), Math.max(drag.time, now)];
      readout.textContent = `${UNITS.time(state.range[1] - state.range[0])} selected`;
      node.redraw();
    }
  });
  node.addEventListener("pointermove", (event) => {
    if (drag) return;
    const item = under(event);
    if (item >= 0) showTip(text(item), event);
    else hideTip();
    if (item !== state.hovered) {
      state.hovered = item;
      node.redraw();
    }
  });
  node.addEventListener("pointerleave", hideTip);
  node.addEventListener("dblclick", (event) => {
    const item = under(event);
    if (item < 0) return;
    const [start, length] = [line().start[item], line().length[item]];
    look(start - length * 0.05, start + length * 1.05);
  });
  overview.addEventListener("pointerdown", (event) => {
    const move = (at) => {
      const box = overview.getBoundingClientRect();
      const left = labelWidth(box.width);
      const time = ((at.clientX - box.left - left) / (box.width - left - 4)) * line().duration;
      const half = (state.to - state.from) / 2;
      look(time - half, time + half);
    };
    see();
    move(event);
    overview.setPointerCapture(event.pointerId);
    overview.onpointermove = move;
    overview.onpointerup = () => (overview.onpointermove = null);
  });
  function toggleRow(y) {
    line().unpack();
    const { rows } = timelineLayout(view());
    const row = rows.findIndex(({ top, bottom }) => y >= top && y < bottom);
    if (row < 0) return;
    const shown = state.levels[state.window];
    shown[row] = shown[row] < rows[row].levels ? rows[row].levels : 1;
    redraw();
  }
  // The item before or after the chosen one in its lane; at first, the first in sight, or at the moment of a finding.
  const next = (by) => {
    const window = line().unpack();
    if (state.chosen < 0) {
      const since = state.mark ? state.mark[0] : state.from;
      const firsts = window.lanes.map(({ from, to }) => [window.firstAt(since, from, to), to]);
      const known = firsts.filter(([item, to]) => item < to).map(([item]) => item);
      known.sort((a, b) => window.start[a] - window.start[b]);
      return known.length > 0 && focusItem(known[0]);
    }
    const lane = window.lanes[window.lane[state.chosen]];
    const item = state.chosen + by;
    if (item >= lane.from && item < lane.to) focusItem(item);
  };
  const nextStep = (by) => {
    const { steps } = line();
    const now = line().stepAt(middle());
    const index = now ? steps.indexOf(now) + by : by > 0 ? 0 : steps.length - 1;
    if (steps[index]) showStep(steps[index][0]);
  };
  node.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    see();
    const length = state.to - state.from;
    const chosen = () => [line().start[state.chosen], line().end(state.chosen)];
    const action = {
      w: () => zoom(0.7, middle()),
      s: () => zoom(1.4, middle()),
      "+": () => zoom(0.7, middle()),
      "-": () => zoom(1.4, middle()),
      a: () => look(state.from - length / 5, state.to - length / 5),
      d: () => look(state.from + length / 5, state.to + length / 5),
      f: () => state.chosen >= 0 && look(...chosen()),
      m: () => state.chosen >= 0 && selectRange(chosen()),
      n: () => jump(1),
      N: () => jump(-1),
      "[": () => nextStep(-1),
      "]": () => nextStep(1),
      ArrowLeft: () => next(-1),
      ArrowRight: () => next(1),
      Escape: () => (state.range ? selectRange(null) : whole()),
    }[event.key];
    if (!action) return;
    action();
    event.preventDefault();
    event.stopPropagation();
  });

  const button = (title, text, action) =>
    el("button", { type: "button", title, "aria-label": title, on: { click: () => (see(), action()) } }, text);
  const select = el(
    "select",
    {
      "aria-label": "window",
      hidden: windows.length < 2,
      on: {
        change: () => {
          see();
          showWindow(Number(select.value));
          whole();
        },
      },
    },
    windows.map((window, index) => el("option", { value: index }, window.label)),
  );
  const number = el("input", {
    type: "number",
    class: "number",
    "aria-label": "step",
    on: { change: () => showStep(Number(number.value)) },
  });
  const search = el("input", {
    type: "search",
    placeholder: "search names (/)",
    "aria-label": "search the timeline",
    on: {
      input: () => {
        see();
        highlight();
      },
      keydown: (event) => {
        if (event.key !== "Enter") return;
        jump(event.shiftKey ? -1 : 1);
        event.preventDefault();
      },
    },
  });
  const found = el("span", { class: "dim", role: "status" });
  const notes = el("p", { class: "note" });
  const hasSteps = windows.some((window) => window.steps.length > 0);
  const steps = hasSteps
    ? [
        el("label", {}, "step ", number),
        button("previous step ([)", "‹", () => nextStep(-1)),
        button("next step (])", "›", () => nextStep(1)),
      ]
    : [];
  FILTER.shown.push(highlight);
  SHOW_RANGE.show = (index, from, to) => {
    see();
    showWindow(index);
    state.mark = [from, to];
    const around = Math.max(to - from, 1000) * 2;
    look(from - around, to + around);
    node.scrollIntoView({ block: "center" });
    node.focus({ preventScroll: true });
  };
  SHOW_RANGE.has = (wanted) => windows.some(({ steps: of }) => of.some(([step]) => step === wanted));
  SHOW_RANGE.step = (wanted) => {
    if (!showStep(wanted)) return false;
    node.scrollIntoView({ block: "center" });
    node.focus({ preventScroll: true });
    return true;
  };
  const first = windows[0].steps[0];
  if (first) number.value = first[0];
  showWindow(0);
  // Unpacking takes a moment: not before somebody looks.
  new IntersectionObserver((entries, observer) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    see();
  }).observe(node);
  const count = windows.reduce((sum, window) => sum + window.total, 0);
  return [
    el(
      "div",
      { class: "tools" },
      select,
      steps,
      button("the whole window (Esc)", "all", whole),
      button("zoom in (w)", "+", () => zoom(0.5, middle())),
      button("zoom out (s)", "−", () => zoom(2, middle())),
      search,
      button("previous match (Shift and Enter)", "↑", () => jump(-1)),
      button("next match (Enter)", "↓", () => jump(1)),
      found,
      button("sums of what is shown", "sums", () => selectRange([state.from, state.to])),
    ),
    notes,
    el("div", { class: "chart flat" }, overview),
    el("div", { class: "chart" }, node),
    readout,
    sums,
    el(
      "p",
      { class: "note" },
      `${count} items. Drag to select a range and see its sums. w and s, or Ctrl and the wheel, zoom; a and d, or ` +
        "Shift and drag, move; [ and ] go from step to step, arrows from item to item; f looks at the chosen item, " +
        "m selects it. A click on a label folds its row. Where items are narrower than a pixel, the colour is the " +
        "stronger the more of it they cover.",
    ),
  ];
}
