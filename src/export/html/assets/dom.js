// Elements, without any text that is parsed as HTML: names of spans and kernels are data.

const SVG = "http://www.w3.org/2000/svg";

function el(tag, attributes = {}, ...children) {
  const node = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") Object.entries(value).forEach(([event, handler]) => node.addEventListener(event, handler));
    else if (value !== null && value !== undefined && value !== false)
      node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

const tip = el("div", { class: "tip", role: "status", hidden: true });

function showTip(text, event) {
  tip.hidden = false;
  tip.textContent = text;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - width - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - height - 8))}px`;
}

function hideTip() {
  tip.hidden = true;
}

function color(index) {
  return `var(--c${index % 8})`;
}

// The value of a colour now, for canvases, which know no variables.
function css(variable) {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}

// The same name has the same colour everywhere.
function hue(name) {
  let hash = 7;
  for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) % 9973;
  return hash % 360;
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function nameColor(name, dimmed) {
  const lightness = isDark() ? 38 : 72;
  return `hsl(${hue(name)} ${dimmed ? 8 : 55}% ${lightness}%)`;
}

// A canvas that is as sharp as the screen, and is drawn anew when its width, the theme or `draw`'s data change.
function canvas(height, label, draw) {
  const node = el("canvas", { tabindex: 0, role: "img", "aria-label": label });
  const context = node.getContext("2d");
  node.redraw = () => {
    const width = node.clientWidth;
    if (width === 0) return;
    const ratio = devicePixelRatio || 1;
    const tall = typeof height === "function" ? height() : height;
    node.style.height = `${tall}px`;
    node.width = width * ratio;
    node.height = tall * ratio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, tall);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    draw(context, width, tall);
  };
  onResize(node, node.redraw);
  return node;
}

// All that is drawn, to be drawn anew with other colours.
const DRAWN = [];

function drawAll() {
  DRAWN.forEach((redraw) => redraw());
}

// Calls back when a width has changed, but not while the page is being laid out.
function onResize(node, redraw) {
  DRAWN.push(redraw);
  new ResizeObserver(() => requestAnimationFrame(redraw)).observe(node);
}

// Text in which `names` are set as code.
function prose(text) {
  return text.split("`").map((part, index) => (index % 2 === 1 ? el("code", {}, part) : part));
}

// Text that is cut where its box ends.
function fitText(context, text, x, y, width) {
  if (width < 18) return;
  // A character of 11 pixels takes six and a half on average.
  const fits = Math.floor(width / 6.5);
  context.fillText(text.length > fits ? `${text.slice(0, Math.max(1, fits - 1))}…` : text, x, y);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", {}, text);
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
