// Puts the sections of the document on the page, in their order.

const KINDS = {
  facts: factsSection,
  tiles: tilesSection,
  steps: stepsSection,
  bars: barsSection,
  series: seriesSection,
  findings: findingsSection,
  table: tableSection,
  roofline: rooflineSection,
  flame: flameSection,
  timeline: timelineSection,
  lines: linesSection,
  columns: columnsSection,
  empty: () => [],
};

function factsSection({ items, notes }) {
  return [
    el(
      "dl",
      { class: "facts" },
      items.map(([label, text]) => [el("dt", {}, label), el("dd", {}, text)]),
    ),
    notes.map((note) => el("p", { class: "note" }, note)),
  ].flat();
}

function tilesSection({ items }) {
  return [
    el(
      "div",
      { class: "tiles" },
      items.map(([label, text, note]) =>
        el("div", { class: "tile" }, el("span", {}, label), el("b", {}, text), el("span", {}, prose(note))),
      ),
    ),
  ];
}

function findingsSection({ items }) {
  return items.map((finding, index) => {
    const { title, kind, saves, least, most, step, percent, path, location, evidence, advice, row, ranges } = finding;
    const span =
      path.length === 0
        ? null
        : el(
            "p",
            {},
            "in ",
            row === null ? path.join(" › ") : el("a", { href: `#spans-${row}` }, path.join(" › ")),
            location ? el("span", { class: "dim" }, ` (${location})`) : null,
          );
    const links = ranges.map(([number, from, length]) => {
      const text = `step ${number ?? "?"}, ${UNITS.time(from)} to ${UNITS.time(from + length)}`;
      return SHOW_RANGE.has(number)
        ? el(
            "a",
            {
              href: "#timeline",
              on: { click: () => setTimeout(() => SHOW_RANGE.show(number, from, from + length)) },
            },
            text,
          )
        : el("span", { class: "dim" }, text);
    });
    return el(
      "article",
      { class: "finding", id: `finding-${index + 1}` },
      el(
        "h3",
        {},
        `${index + 1}. `,
        prose(title),
        " ",
        el("a", { class: "dim", href: `#finding-${index + 1}` }, `[${kind}]`),
      ),
      el(
        "p",
        {},
        "saves ",
        el("b", { "data-value": saves }, UNITS.time(saves)),
        ` of ${UNITS.time(step)} a step` +
          ` (${UNITS.percent(percent)}; between ${UNITS.time(least)} and ${UNITS.time(most)})`,
      ),
      span,
      el(
        "ul",
        {},
        evidence.map((line) => el("li", {}, prose(line))),
      ),
      el("p", {}, prose(advice)),
      links.length > 0
        ? el(
            "p",
            { class: "note" },
            "seen in: ",
            links.flatMap((link, at) => (at > 0 ? ["; ", link] : [link])),
          )
        : null,
    );
  });
}

// Sections beside each other, such as before and after.
function columnsSection({ columns }) {
  const column = (section) => {
    const note = section.note ? el("p", { class: "note" }, section.note) : null;
    return el("div", { id: section.id }, el("h3", {}, section.title), note, KINDS[section.kind](section));
  };
  return [el("div", { class: "columns" }, columns.map(column))];
}

// What was lost, above everything else.
function banner(lines) {
  return el(
    "div",
    { class: "banner", role: "alert" },
    lines.map((line) => el("p", {}, prose(line))),
    el("p", {}, "Sections marked with ", el("b", {}, "*"), " rest on incomplete data."),
  );
}

// Sections that are whole even if records were lost: steps are counted whether they are recorded or not.
const WHOLE = ["run", "steps"];

function sectionNode(section) {
  const content = KINDS[section.kind](section);
  const isWhole = !DATA.losses || WHOLE.includes(section.id);
  const star = isWhole ? null : el("sup", { title: "rests on incomplete data" }, "*");
  return el(
    "section",
    { id: section.id, "aria-label": section.title },
    el("h2", {}, section.title, star),
    section.note ? el("p", { class: "note" }, section.note) : null,
    content,
  );
}

// Follows a link to a row, which may not be shown yet.
function reveal() {
  const [, table, row] = /^#([a-z-]+)-(\d+)$/.exec(location.hash) ?? [];
  if (table && REVEAL[table]) {
    REVEAL[table](Number(row));
    const node = document.getElementById(`${table}-${row}`);
    document.querySelectorAll("tr.found").forEach((other) => other.classList.remove("found"));
    node?.classList.add("found");
    node?.scrollIntoView({ block: "center" });
  } else if (location.hash.length > 1) {
    document.getElementById(location.hash.slice(1))?.scrollIntoView();
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  drawAll();
}

const DATA = JSON.parse(document.getElementById("data").textContent);
document.title = DATA.title;
// The timeline first, as findings ask it which steps it has.
const nodes = new Map();
const built = [...DATA.sections].sort((a, b) => (b.kind === "timeline") - (a.kind === "timeline"));
built.forEach((section) => nodes.set(section, sectionNode(section)));
const theme = el(
  "button",
  {
    type: "button",
    title: "light or dark (t)",
    on: {
      click: () => setTheme(isDark() ? "light" : "dark"),
    },
  },
  "◐",
);
const help =
  "/ search, t light or dark, 1 to 9 sections, arrows and Enter in flame graphs and tables, w a s d in the timeline";
document.body.replaceChildren(
  el(
    "header",
    {},
    el(
      "div",
      {},
      el("h1", { title: DATA.title }, DATA.title.replace(/ – kernspan$/, "")),
      el(
        "nav",
        { "aria-label": "sections" },
        DATA.sections.map(({ id, title }) => el("a", { href: `#${id}` }, title)),
      ),
      theme,
    ),
  ),
  el(
    "main",
    {},
    DATA.losses ? banner(DATA.losses) : null,
    DATA.sections.map((section) => nodes.get(section)),
    el("p", { class: "note" }, `Keys: ${help}.`),
    el("p", { class: "note" }, DATA.made),
  ),
  tip,
);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
addEventListener("beforeprint", drawAll);
addEventListener("hashchange", reveal);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "/") {
    // The search of the section that is in sight.
    const seen = [...document.querySelectorAll("section")].filter((node) => node.querySelector("input[type=search]"));
    const first = seen.find((node) => node.getBoundingClientRect().bottom > innerHeight / 3) ?? seen[0];
    first?.querySelector("input[type=search]").focus();
    event.preventDefault();
  } else if (event.key === "t") {
    theme.click();
  } else if (/^[1-9]$/.test(event.key) && DATA.sections[event.key - 1]) {
    location.hash = DATA.sections[event.key - 1].id;
  }
});
drawAll();
reveal();
document.documentElement.dataset.ready = "";
