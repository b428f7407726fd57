// Tables that can be sorted, searched and copied; with parents they are trees.

const FEW_ROWS = 100;

function tableSection(section) {
  const { columns, parents } = section;
  // A number in a list is known to three digits only.
  const isRough = (value) => Array.isArray(value);
  const rows = section.rows.map((row) => row.map((value) => (isRough(value) ? value[0] : value)));
  const tree = parents ? new Tree(rows.length, parents) : null;
  const state = { sort: section.sort ?? null, down: true, query: "", all: false };
  const body = el("tbody");
  const count = el("span", { class: "dim", role: "status" });
  const search = el("input", { type: "search", placeholder: "search (/)", "aria-label": `search ${section.title}` });
  const more = el(
    "button",
    {
      type: "button",
      on: {
        click: () => {
          state.all = true;
          draw();
        },
      },
    },
    "show all",
  );
  const copy = el("button", { type: "button", on: { click: () => copyText(asText()) } }, "copy");
  // The short forms of functions.
  const short = new Map(section.short);
  const widths = nameWidths(section, short);
  const heads = columns.map(([title, unit, help], index) => {
    const style = widths && widths[index] > 0 ? `width: ${widths[index].toFixed(1)}%` : null;
    return el(
      "th",
      { class: isText(unit) ? "text" : null, scope: "col", title: help, style },
      el("button", { type: "button", on: { click: () => sortBy(index) } }, title),
    );
  });
  search.addEventListener("input", () => {
    state.query = search.value.toLowerCase();
    draw();
  });

  const most = columns.map(([, unit], index) =>
    unit === "total"
      ? Math.max(
          1,
          rows.reduce((most, row) => Math.max(most, row[index] ?? 0), 0),
        )
      : 0,
  );
  const cell = (row, index) => {
    const value = section.rows[row][index];
    return isRough(value) ? UNITS.rough(value[0]) : format(columns[index][1], value);
  };
  const shownText = (row, index) => {
    const value = rows[row][index];
    if (columns[index][1] === "name" && value !== null) return shownName(value);
    return (columns[index][1] === "function" && short.get(value)) || cell(row, index);
  };
  const asText = () =>
    [columns.map(([title]) => title), ...order().map((row) => columns.map((_, i) => cell(row, i)))]
      .map((cells) => cells.join("\t"))
      .join("\n");

  function sortBy(index) {
    state.down = state.sort === index ? !state.down : !isText(columns[index][1]);
    state.sort = index;
    draw();
  }

  function compare(a, b) {
    if (state.sort === null) return a - b;
    const unit = columns[state.sort][1];
    const [x, y] = [rows[a][state.sort], rows[b][state.sort]].map((value) =>
      isName(unit) ? DATA.names[value] : value,
    );
    const ascending = isText(unit)
      ? String(x ?? "").localeCompare(String(y ?? ""))
      : (x ?? -Infinity) - (y ?? -Infinity);
    return (state.down ? -ascending : ascending) || a - b;
  }

  function matches(row) {
    if (only !== null && !only.has(rows[row][0])) return false;
    return columns.some(
      ([, unit], index) =>
        isText(unit) &&
        [cell(row, index), shownText(row, index)].some((text) => (text ?? "").toLowerCase().includes(state.query)),
    );
  }

  // The names of the rows of the chosen part of a step, or `null` for all rows.
  const isKernels = section.id === "kernels";
  let only = null;
  const choosePart = () => {
    if (isKernels) only = FILTER.part < 3 ? FILTER.names() : null;
    else if (section.id === "spans") only = FILTER.spans();
  };
  choosePart();
  if (isKernels || section.id === "spans")
    FILTER.shown.push(() => {
      choosePart();
      draw();
    });

  // The rows that are shown, in their order.
  function order() {
    const isAll = state.query === "" && only === null;
    if (tree) return tree.order(compare, isAll ? null : matches);
    const found = [...rows.keys()];
    return (isAll ? found : found.filter(matches)).sort(compare);
  }

  function line(index) {
    const row = rows[index];
    const cells = columns.map(([, unit], column) => {
      const text = cell(index, column);
      const shown = shownText(index, column);
      if (column === 0) return nameCell(index, text, shown);
      const share = most[column] > 0 && row[column] > 0 ? (100 * row[column]) / most[column] : 0;
      const way = unit === "change" && row[column] ? (row[column] > 0 ? "bad" : "good") : "";
      const alignment = unit === "word" ? "text" : isText(unit) ? "text name" : "";
      const kind = [alignment, share > 0 ? "share" : "", way].filter(Boolean).join(" ");
      const style = share > 0 ? `--share:${share.toFixed(1)}%` : null;
      return el(
        "td",
        { class: kind || null, style, title: isText(unit) ? text : null, "data-value": row[column] },
        widths && widths[column] > 0 ? middleCut(shown, NARROW) : shown,
      );
    });
    const marked = section.marked?.includes(index) ? "marked" : null;
    const level = tree ? tree.depth[index] + 1 : null;
    return el("tr", { id: `${section.id}-${index}`, class: marked, "aria-level": level }, cells);
  }

  function nameCell(index, text, shown) {
    if (!tree) return el("td", { class: "text name", title: text }, middleCut(shown, widths ? NARROW : WIDE));
    const twist = el(
      "button",
      {
        type: "button",
        class: "twist",
        "aria-label": tree.open[index] ? "close" : "open",
        "aria-expanded": tree.children[index].length > 0 ? String(tree.open[index]) : null,
        disabled: tree.children[index].length === 0,
        on: {
          click: () => {
            tree.open[index] = !tree.open[index];
            draw(index);
          },
        },
      },
      tree.children[index].length === 0 ? "" : tree.open[index] ? "▾" : "▸",
    );
    // Deep recursion stays in sight.
    const indent = `padding-left:${0.3 + 0.9 * Math.min(tree.depth[index], 24)}rem`;
    return el("td", { class: "text name", title: text, style: indent }, twist, text);
  }

  function draw(focused) {
    const shown = order();
    const limit = state.all ? shown.length : FEW_ROWS;
    body.replaceChildren(...shown.slice(0, limit).map(line));
    more.hidden = shown.length <= limit;
    more.textContent = `show all ${shown.length}`;
    const others = section.leftOut > 0 ? `; ${section.leftOut} more rows are not in this file` : "";
    const part = only === null ? "" : ` of ${shortPart(FILTER.answer.parts[FILTER.part])}`;
    count.textContent = `${shown.length} of ${rows.length} rows${part}${others}`;
    heads.forEach((head, index) => {
      if (state.sort === index) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    if (focused !== undefined) document.querySelector(`#${section.id}-${focused} .twist`)?.focus();
  }

  // Shows a row that may be in a closed part of the tree, or past the first rows.
  REVEAL[section.id] = (index) => {
    if (tree) tree.show(index);
    state.query = search.value = "";
    if (only !== null && !only.has(rows[index][0])) FILTER.set(FILTER.part);
    if (!order().slice(0, FEW_ROWS).includes(index)) state.all = true;
    draw();
  };

  body.addEventListener("keydown", (event) => {
    const line = event.target.closest("tr");
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (step) {
      line[step]?.querySelector(".twist")?.focus();
      event.preventDefault();
    } else if (tree && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
      const index = Number(line.id.slice(section.id.length + 1));
      tree.open[index] = event.key === "ArrowRight";
      draw(index);
      event.preventDefault();
    }
  });
  const opening =
    tree &&
    ["open all", "close all"].map((label, close) =>
      el(
        "button",
        {
          type: "button",
          on: {
            click: () => {
              tree.open.fill(!close);
              draw();
            },
          },
        },
        label,
      ),
    );
  draw();
  const scroll = el(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": section.title },
    el(
      "table",
      { role: tree ? "treegrid" : null, class: widths ? "shared" : null },
      el("thead", {}, el("tr", {}, heads)),
      body,
    ),
  );
  const hint = el("span", { class: "dim hint", hidden: true }, "scroll sideways for more columns →");
  return [
    el("div", { class: "tools" }, search, opening, more, copy, count, hint),
    hintOfScrolling(scroll, hint),
  ];
}

// The percentages of the table's width for which columns of names ask, by how long their texts are. They share the room
// that numbers leave, so that no number is out of sight. `null` if only the first column has names.
function nameWidths({ columns, rows }, short) {
  const MOST = 48;
  const text = (unit, value) => short.get(value) ?? (unit === "name" ? shownName(value) : format(unit, value));
  const length = (unit, value) => (value === null ? 0 : text(unit, value).length);
  const isShared = (unit) => unit === "text" || isName(unit);
  if (columns.filter(([, unit]) => isShared(unit)).length < 2) return null;
  const widths = columns.map(([title, unit], index) => {
    const longest = (most, row) => Math.max(most, length(unit, row[index]));
    return isShared(unit) ? Math.min(MOST, rows.reduce(longest, title.length)) : 0;
  });
  const all = widths.reduce((sum, width) => sum + width, 0);
  return widths.map((width) => (100 * width) / all);
}

// The length from which a name may be cut, and how much of its end is kept: in a single column of names, and in one of
// several.
const WIDE = [40, 18];
const NARROW = [18, 12];

// A name that is cut in the middle if there is no room for it: names of kernels often differ at the end only.
function middleCut(name, [longest, kept] = WIDE) {
  const end = name.length > longest ? name.slice(-kept) : "";
  const start = name.slice(0, name.length - end.length);
  return el("span", { class: "cut" }, el("span", {}, start), end === "" ? null : el("span", {}, end));
}

// Has a table that is wider than the page say so, and where the rest is.
function hintOfScrolling(scroll, hint) {
  const box = el("div", { class: "sideways" }, scroll);
  const update = () => {
    const rest = scroll.scrollWidth - scroll.clientWidth - scroll.scrollLeft;
    box.classList.toggle("more", rest > 2);
    box.classList.toggle("less", scroll.scrollLeft > 2);
    hint.hidden = scroll.scrollWidth - scroll.clientWidth <= 2;
  };
  scroll.addEventListener("scroll", update);
  onResize(scroll, update);
  return box;
}

// What shows a row of a table, by the id of its section.
const REVEAL = {};

class Tree {
  // A parent comes before its children; -1 has none.
  constructor(count, parents) {
    this.parents = parents;
    this.children = Array.from({ length: count }, () => []);
    this.roots = [];
    this.depth = new Array(count).fill(0);
    parents.forEach((parent, index) => {
      (parent < 0 ? this.roots : this.children[parent]).push(index);
      if (parent >= 0) this.depth[index] = this.depth[parent] + 1;
    });
    this.open = this.depth.map((depth) => depth < 2);
  }

  order(compare, matches) {
    const kept = matches && new Set();
    if (kept) {
      for (let row = 0; row < this.parents.length; row++) {
        if (matches(row)) for (let at = row; at >= 0 && !kept.has(at); at = this.parents[at]) kept.add(at);
      }
    }
    const found = [];
    const todo = [...this.roots].sort(compare).reverse();
    while (todo.length > 0) {
      const row = todo.pop();
      if (kept && !kept.has(row)) continue;
      found.push(row);
      if (kept || this.open[row]) todo.push(...[...this.children[row]].sort(compare).reverse());
    }
    return found;
  }

  show(row) {
    for (let at = this.parents[row]; at >= 0; at = this.parents[at]) this.open[at] = true;
  }
}
