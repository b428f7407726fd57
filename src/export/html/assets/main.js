// Puts the sections of the document on the page, in their order.

const KINDS = {
  answer: answerSection,
  facts: factsSection,
  tiles: tilesSection,
  steps: stepsSection,
  bars: barsSection,
  heat: heatSection,
  series: seriesSection,
  findings: findingsSection,
  table: tableSection,
  roofline: rooflineSection,
  flame: flameSection,
  timeline: timelineSection,
  lines: linesSection,
  scatter: scatterSection,
  columns: columnsSection,
  empty: ({ note }) => (note ? [el("p", { class: "nothing" }, prose(sentence(note)))] : []),
};

// Of a run they are folded: where and how it was recorded matters once something is strange.
function factsSection({ id, items, notes }) {
  const list = el(
    "dl",
    { class: "facts" },
    items.map(([label, text]) => [el("dt", {}, label), el("dd", {}, prose(String(text)))]),
  );
  const below = notes.map((note) => el("p", { class: "note" }, note));
  if (id !== "run") return [list, ...below];
  const summary = el("summary", {}, `${items.map(([label]) => label).join(", ")}, summary`);
  return [el("details", {}, summary, list, below)];
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
    section.kind === "answer" && !star ? null : el("h2", {}, section.title, star),
    section.note && section.kind !== "empty" ? el("p", { class: "note" }, section.note) : null,
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
    const node = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folded = node?.matches("details") ? node : node?.querySelector(":scope > details");
    if (folded) folded.open = true;
    node?.scrollIntoView();
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  drawAll();
}

const DATA = JSON.parse(document.getElementById("data").textContent);
document.title = DATA.title;
const nodes = new Map(DATA.sections.map((section) => [section, sectionNode(section)]));
// The part of the step that is shown, wherever one has scrolled to.
const only = el("button", {
  type: "button",
  class: "only",
  hidden: true,
  on: { click: () => FILTER.set(FILTER.part) },
});
FILTER.shown.push((part) => {
  only.hidden = part < 0;
  only.textContent = part < 0 ? "" : `only ${shortPart(FILTER.answer.parts[part])} ✕`;
});
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
  "/ search, t light or dark, 1 to 9 sections, arrows and Enter in flame graphs and tables, w a s d in the timeline, " +
  "Esc shows all parts of the step";
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
      only,
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
  } else if (event.key === "Escape" && FILTER.part >= 0) {
    FILTER.set(FILTER.part);
  } else if (event.key === "t") {
    theme.click();
  } else if (/^[1-9]$/.test(event.key) && DATA.sections[event.key - 1]) {
    location.hash = DATA.sections[event.key - 1].id;
  }
});
drawAll();
reveal();
document.documentElement.dataset.ready = "";
