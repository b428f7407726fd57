// The top of the page: what a step takes, where its time goes, and what to change first.

// The part of the step that the page shows, or -1 for all of it. Sections that can show one part add themselves.
const FILTER = {
  part: -1,
  answer: null,
  shown: [],
  set(part) {
    this.part = part === this.part ? -1 : part;
    this.shown.forEach((show) => show(this.part));
  },
  // The names of the chosen part, as indices: kernels, calls or spans.
  names() {
    return this.part < 0 ? null : new Set(this.answer.contents[this.part].names);
  },
  // The names of spans that have something of the chosen part.
  spans() {
    if (this.part < 0) return null;
    return new Set(this.answer.contents[this.part].rows.map(([name, span]) => span ?? name));
  },
};

// The parts of a step, in the order of `StepPart`, and their colours.
const PART_COLORS = [
  "var(--c0)",
  "var(--c1)",
  "var(--c2)",
  "color-mix(in srgb, var(--c0) 35%, var(--c7))",
  "var(--c3)",
  "var(--c4)",
  "var(--c5)",
  "var(--c6)",
  "var(--c7)",
];
const GPU_PARTS = 3;

// A part without what goes for all of its kind, as a title: `host, GPU idle` is `host`.
function shortPart(part) {
  return part.split(",")[0];
}

function answerSection(section) {
  const { step, parts, values, basis, figures, ranks, ranksDiffer, recorded } = section;
  FILTER.answer = section;
  const headline =
    step === null
      ? el("p", { class: "headline" }, `${recorded} recorded, but no whole step`)
      : el(
          "p",
          { class: "headline" },
          "A step takes ",
          el("b", { "data-value": step }, UNITS.short(step)),
        );
  const shown = figures.map(([text, target]) =>
    target === "" || !DATA.sections.some(({ id }) => id === target)
      ? el("li", {}, text)
      : el("li", {}, el("a", { href: `#${target}` }, text)),
  );
  const total = values.reduce((sum, value) => sum + value, 0);
  return [
    headline,
    ranks
      ? el("p", { class: ranksDiffer ? "alert" : "note", role: ranksDiffer ? "alert" : null }, ranksText(section))
      : null,
    total > 0 ? partsBar(section, total) : null,
    total > 0 ? el("p", { class: "note" }, `Where it goes: ${basis}. Click a part to see what it consists of.`) : null,
    total > 0 ? partDetails(section, total) : null,
    el("ul", { class: "figures" }, shown),
  ].filter(Boolean);
}

function ranksText({ ranks }) {
  return [ranks, " ", el("a", { href: "#ranks" }, "All ranks")];
}

// One bar over the full width: its parts are buttons. A part that is too narrow for its label has it below.
function partsBar({ parts, values, help }, total) {
  const percent = (value) => (100 * value) / total;
  const known = [...values.keys()].filter((part) => values[part] > 0);
  const label = (part) => [
    el("b", {}, shortPart(parts[part])),
    el("span", {}, `${UNITS.short(values[part])} · ${UNITS.percent(percent(values[part]))}`),
  ];
  const button = (part, kind) =>
    el(
      "button",
      {
        type: "button",
        class: `${kind} part-${part}`,
        "aria-pressed": "false",
        "data-value": values[part],
        style: `--part:${PART_COLORS[part]}${kind === "part" ? `;flex-grow:${values[part]}` : ""}`,
        title: `${parts[part]}: ${help[part]}`,
        on: { click: () => FILTER.set(part) },
      },
      label(part),
    );
  const inside = known.map((part) => button(part, "part"));
  const below = known.map((part) => button(part, "chip"));
  const bar = el("div", { class: "parts", role: "group", "aria-label": "where a step goes" }, inside);
  const chips = el("div", { class: "chips" }, below);
  // Each part is one stop for the keyboard and one thing for a screen reader: in the bar, or below it.
  const place = () =>
    known.forEach((_, index) => {
      const wide = inside[index].clientWidth;
      inside[index].classList.remove("narrow");
      const fits = wide > 0 && inside[index].scrollWidth <= wide + 1;
      inside[index].classList.toggle("narrow", !fits);
      inside[index].tabIndex = fits ? 0 : -1;
      inside[index].setAttribute("aria-hidden", String(!fits));
      // What is less than a thousandth of the step is in the bar only.
      below[index].hidden = fits || percent(values[known[index]]) < 0.1;
    });
  onResize(bar, place);
  FILTER.shown.push((chosen) => {
    known.forEach((part, index) => {
      [inside[index], below[index]].forEach((node) => {
        node.setAttribute("aria-pressed", String(part === chosen));
        node.classList.toggle("faded", chosen >= 0 && part !== chosen);
      });
    });
  });
  bar.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const stops = [...inside, ...below].filter((node) => node.tabIndex >= 0 && !node.hidden);
    stops[(stops.indexOf(document.activeElement) + by + stops.length) % stops.length]?.focus();
    event.preventDefault();
  });
  return el("div", { class: "whole" }, bar, chips);
}

// What the chosen part consists of.
function partDetails({ parts, values, help, contents }, total) {
  const box = el("div", { class: "details", role: "status", hidden: true });
  FILTER.shown.push((part) => {
    box.hidden = part < 0;
    if (part < 0) return box.replaceChildren();
    const { rows, leftOut } = contents[part];
    const most = rows.reduce((sum, row) => Math.max(sum, row[2]), 1);
    const clear = el(
      "button",
      { type: "button", class: "clear", on: { click: () => FILTER.set(part) } },
      "show all parts (Esc)",
    );
    const [isGpu, isIdle] = [part < GPU_PARTS, parts[part].endsWith("GPU idle")];
    const links = [
      isGpu && ["kernels", "kernels of this part"],
      ["spans", "spans of this part"],
      ["timeline", "this part in the timeline"],
    ].filter((link) => link && DATA.sections.some(({ id }) => id === link[0]));
    const cells = ([name, span, nanos, count]) =>
      el(
        "tr",
        {},
        el("td", { class: "text name", title: DATA.names[name] }, middleCut(shownName(name))),
        el("td", { class: "text" }, span === null ? "" : DATA.names[span]),
        el("td", { class: "share", style: `--share:${((100 * nanos) / most).toFixed(1)}%` }, UNITS.time(nanos)),
        el("td", {}, String(count)),
      );
    const table =
      rows.length === 0
        ? null
        : el(
            "div",
            { class: "scroll short", tabindex: 0, role: "region", "aria-label": `contents of ${parts[part]}` },
            el(
              "table",
              {},
              el(
                "thead",
                {},
                el(
                  "tr",
                  {},
                  ["Name", "In span", `Time a step${isIdle ? ", GPU idle" : ""}`, "Calls a step"].map((title, at) =>
                    el("th", { class: at < 2 ? "text plain" : "plain", scope: "col" }, title),
                  ),
                ),
              ),
              el("tbody", {}, rows.map(cells)),
            ),
          );
    const more = leftOut > 0 ? el("p", { class: "note" }, `${leftOut} more that take less are not shown.`) : null;
    box.replaceChildren(
      el(
        "p",
        {},
        el("b", {}, parts[part]),
        `: ${UNITS.short(values[part])} a step, ${UNITS.percent((100 * values[part]) / total)}. ${help[part]} `,
        clear,
      ),
      ...[table, more].filter(Boolean),
      el(
        "p",
        {},
        "Below, only this part: ",
        links.flatMap(([id, text], at) => [at > 0 ? ", " : "", el("a", { href: `#${id}` }, text)]),
        ".",
      ),
    );
  });
  return box;
}

// A saving and its bounds, drawn to the scale of the step: what is left of it, how much goes, and how sure that is.
function savingRange([least, likely, most], step) {
  const at = (nanos) => `${Math.min(100, (100 * nanos) / (step || 1)).toFixed(2)}%`;
  const text = `saves ${UNITS.short(likely)} of ${UNITS.short(step)}, ${bounds([least, likely, most])}`;
  return el(
    "div",
    { class: "range", role: "img", "aria-label": text, title: text },
    el("i", { class: "sure", style: `width:${at(least)}` }),
    el("i", { class: "unsure", style: `left:${at(least)};width:${at(most - least)}` }),
    el("i", { class: "likely", style: `left:${at(likely)}` }),
  );
}

function bounds([least, , most]) {
  return `between ${UNITS.short(least)} and ${UNITS.short(most)}`;
}

// A link to a moment in the timeline, or only its text if the moment is not there.
function momentLink([number, from, length, window, start], text) {
  const place = number === null ? "" : `step ${number}, `;
  const since = number === null ? " after the window opened" : "";
  const said = text ?? `${place}${UNITS.short(from)} to ${UNITS.short(from + length)}${since}`;
  if (window === undefined) return el("span", { class: "dim" }, said);
  const show = () => setTimeout(() => SHOW_RANGE.show(window, start, start + length));
  return el("a", { href: "#timeline", on: { click: show } }, said);
}

function findingBody({ saving, step, path, location, evidence, remedies, row, ranges }) {
  const place =
    path.length === 0
      ? null
      : el(
          "p",
          {},
          "in ",
          row === null ? path.join(" › ") : el("a", { href: `#spans-${row}` }, path.join(" › ")),
          location ? el("span", { class: "dim" }, ` (${location})`) : null,
        );
  const todo = remedies.map(({ change, saving: of }) =>
    el(
      "li",
      {},
      el("p", {}, prose(change)),
      remedies.length < 2
        ? null
        : el(
            "div",
            { class: "saves" },
            el("p", {}, "saves ", el("b", { "data-value": of[1] }, UNITS.short(of[1])), `, ${bounds(of)}`),
            savingRange(of, step),
          ),
    ),
  );
  return [
    place,
    el("h4", {}, remedies.length > 1 ? "What to do: one of these" : "What to do"),
    el("ul", { class: remedies.length > 1 ? "remedies several" : "remedies" }, todo),
    el("h4", {}, "Why"),
    el(
      "ul",
      {},
      evidence.map((line) => el("li", {}, prose(line))),
    ),
    ranges.length > 0
      ? el(
          "p",
          { class: "note" },
          "Seen in: ",
          ranges.flatMap((range, at) => [at > 0 ? "; " : "", momentLink(range)]),
        )
      : null,
  ].filter(Boolean);
}

// A title as the beginning of a sentence.
function sentence(title) {
  return title.slice(0, 1).toUpperCase() + title.slice(1);
}

// The first finding in full; the others in a line each, which open.
function findingsSection({ items }) {
  const nodes = items.map((finding, index) => {
    const { title, kind, saving, step, percent, ranges } = finding;
    const id = `finding-${index + 1}`;
    const saves = [
      "saves ",
      el("b", { "data-value": saving[1] }, UNITS.short(saving[1])),
      ` of ${UNITS.short(step)} a step (${UNITS.percent(percent)})`,
    ];
    const moment = ranges.find((range) => range.length > 3);
    if (index === 0) {
      return el(
        "article",
        { class: "finding first", id },
        el("h3", {}, prose(sentence(title)), " ", el("a", { class: "dim", href: `#${id}` }, `[${kind}]`)),
        el(
          "div",
          { class: "saves" },
          el("p", { class: "saving" }, saves, ` → ${UNITS.short(Math.max(0, step - saving[1]))}`),
          savingRange(saving, step),
          el("p", { class: "note" }, `How sure: ${bounds(saving)}.`),
        ),
        moment ? el("p", {}, momentLink(moment, "show the moment in the timeline →")) : null,
        findingBody(finding),
      );
    }
    return el(
      "details",
      { class: "finding", id },
      el(
        "summary",
        {},
        el(
          "span",
          { class: "said" },
          `${index + 1}. `,
          prose(sentence(title)),
          el("span", { class: "dim" }, ` [${kind}]`),
        ),
        el("span", { class: "dim" }, saves),
        savingRange(saving, step),
      ),
      el("p", { class: "note" }, `How sure: ${bounds(saving)}.`),
      findingBody(finding),
    );
  });
  FILTER.shown.push((part) =>
    items.forEach(({ parts }, index) =>
      nodes[index].classList.toggle("faded", part >= 0 && parts.length > 0 && !parts.includes(part)),
    ),
  );
  const others = nodes.length > 1 ? el("h3", {}, nodes.length === 2 ? "One more" : `${nodes.length - 1} more`) : null;
  return [nodes[0], others, ...nodes.slice(1)].filter(Boolean);
}
