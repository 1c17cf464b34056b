// How numbers and tokens are written, and how elements are made: text is only ever text.

const SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\u2028": "⏎", "\u2029": "⏎"};
const code = (letter) => `U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
const LONGEST = 60;

// A label as it can be seen: outer spaces, line ends and what has no shape of its own get a sign.
function seen(label) {
  if (label === "") return "∅";
  const letters = [...label];
  const first = letters.findIndex((letter) => letter !== " ");
  const last = letters.findLastIndex((letter) => letter !== " ");
  return letters.map((letter, place) => {
    if (letter === " " && first >= 0 && place > first && place < last) return letter;
    if (letter in SIGNS) return SIGNS[letter];
    return /[\p{Cc}\p{Cf}\p{Cs}\p{Zs}]/u.test(letter) ? code(letter) : letter;
  }).join("");
}

function short(text, longest = LONGEST) {
  const letters = [...text];
  return letters.length > longest ? letters.slice(0, longest - 1).join("") + "…" : text;
}

const grouped = (whole) => whole.toLocaleString("en");

// Four decimals, and what these would hide as a power of ten.
function figure(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const isExtreme = value !== 0 && (size < 0.00005 || size >= 1e6);
  const text = isExtreme ? value.toExponential(1) : value.toFixed(size < 1000 ? 4 : 1);
  return text.replaceAll("-", "−");
}

const share = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`);
const plural = (count, one, many = one + "s") => `${grouped(count)} ${count === 1 ? one : many}`;

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in element && typeof value !== "string") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function draw(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const at = (id) => document.getElementById(id);

// A table's rows: the first cell of each is its header; cells are texts or elements.
function fillTable(table, header, rows) {
  const cell = (name, content, more = {}) => make(name, more, content);
  table.replaceChildren(
    make("thead", {}, make("tr", {}, ...header.map((content) => cell("th", content, {scope: "col"})))),
    make("tbody", {}, ...rows.map(([first, ...rest]) =>
      make("tr", {}, cell("th", first, {scope: "row"}), ...rest.map((content) => cell("td", content))))));
}

// Beside the pointer or a focused picture, and aloud where the keyboard asked.
function tell(text, x, y, aloud = false) {
  const tip = at("tip");
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const {width, height} = tip.getBoundingClientRect();
  const right = document.documentElement.clientWidth - width - 8;
  tip.style.left = `${Math.max(8, Math.min(x + 14, right))}px`;
  tip.style.top = `${y + 18 + height > window.innerHeight ? Math.max(8, y - height - 12) : y + 18}px`;
  if (aloud) at("said").textContent = text;
}
