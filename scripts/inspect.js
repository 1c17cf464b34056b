// What is looked at, which the page's address holds, and what changes it.

const numbers = await unpack(at("numbers").textContent).then((bytes) => new Numbers(bytes)).catch((problem) => {
  at("problem").hidden = false;
  at("problem").textContent = `The numbers of this page could not be unpacked (${problem.message}); a browser of 2023 or `
    + "later can.";
  throw problem;
});
const {about} = numbers;
const START = {...about.opens_at, colour: "disagree", near: 0, sort: "channel", all: false};

// Of an address what has a meaning; the rest is as the page opens.
function stateOf(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const text = (name) => given.get(name) ?? "";
  const whole = (name, end) => (/^\d{1,9}$/.test(text(name)) && +text(name) < end ? +text(name) : undefined);
  const among = (name, table, key = text(name)) => (Object.hasOwn(table, key) ? text(name) : undefined);
  const near = whole("near", Infinity);
  const found = {
    row: numbers.rowOf.get(whole("token", numbers.tokens)),
    layer: whole("layer", numbers.layers), head: whole("head", numbers.heads),
    colour: among("colour", COLOURS), near: NEAR.includes(near) ? near : undefined,
    sort: among("sort", COLUMNS, text("sort").replace("-", "")), all: given.has("all") ? text("all") === "1" : undefined,
  };
  return {...START, ...Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined))};
}

function addressOf({row, layer, head, all, ...others}) {
  const words = {token: numbers.rows[row], layer, head};
  for (const name of ["colour", "near", "sort"]) if (others[name] !== START[name]) words[name] = others[name];
  if (all) words.all = 1;
  return "#" + new URLSearchParams(words);
}

let state = stateOf(location.hash);
let settling = 0;

// A choice is a step of the browser's history; a run of keys is one (browsers refuse hundreds of steps in seconds).
function go(change, isKey = false) {
  state = {...state, ...change};
  show();
  clearTimeout(settling);
  if (isKey) settling = setTimeout(() => history.replaceState(null, "", addressOf(state)), 250);
  else history.pushState(null, "", addressOf(state));
}

const cells = buildTokens(numbers, (row, isKey) => go({row}, isKey));
const readingPicture = new Picture(at("reading"), () => "");
const mapPicture = new Picture(at("map"), () => "", (layer, token) => {
  const near = (a, b) => Math.abs(numbers.rows[a] - token) - Math.abs(numbers.rows[b] - token);
  go({layer, row: numbers.rows.map((_, row) => row).sort(near)[0]});
});

function build() {
  document.title = `${about.title} – selection microscope`;
  at("title").textContent = about.title;
  at("command").textContent = about.command;
  const told = ["mixer", "prior", "dialect"].filter((name) => about[name]).map((name) => `${name} ${about[name]}`);
  at("about").textContent = [...told, about.causal ? "causal" : "looks both ways", plural(numbers.layers, "layer"),
    plural(numbers.heads, "head"), `${plural(numbers.channels, "channel")} a head`, plural(numbers.tokens, "token")]
    .join(" · ");
  at("notes").replaceChildren(...about.notes.map((note) => make("li", {}, note)));
  at("tokens-note").textContent = "Choose one by a click or by the arrow keys. " + (numbers.rows.length < numbers.tokens
    ? `The ${grouped(numbers.rows.length)} underlined ones are shown whole; the others have their colour only.` : "");
  const count = (end) => Array.from({length: end}, (_, place) => [place, String(place)]);
  const options = {layer: count(numbers.layers), head: count(numbers.heads),
    colour: Object.entries(COLOURS).map(([key, {title}]) => [key, title]),
    near: NEAR.filter((near) => near < numbers.tokens).map((near) => [near, near ? `nearest ${near}` : "all"])};
  for (const [name, all] of Object.entries(options)) {
    at(name).append(...all.map(([value, text]) => make("option", {value: String(value)}, text)));
    at(name).addEventListener("change", () => go({[name]: name === "colour" ? at(name).value : +at(name).value}));
  }
  at("near").parentElement.hidden = options.near.length < 2;
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  at("all").addEventListener("change", () => go({all: at("all").checked}));
  at("tokens").addEventListener("pointerover", (event) =>
    tell(event.target.closest(".token")?.told() ?? "", event.clientX, event.clientY));
  at("tokens").addEventListener("pointerleave", () => tell(""));
  document.addEventListener("pointerdown", (event) => event.target.closest("canvas, .token") || tell(""));
  document.addEventListener("keydown", (event) => event.key === "Escape" && tell(""));
  buildChannels((key) => go({sort: state.sort === key ? `-${key}` : key}));
  buildPlaces(numbers);
  buildLayers(numbers, (layer) => go({layer}));
}

function show() {
  const reading = numbers.reading(state);
  for (const name of ["layer", "head", "colour", "near"]) at(name).value = state[name];
  const order = sorted(reading.channels, state.sort);
  showFacts(numbers, state, reading);
  showTokens(numbers, cells, state, reading);
  showReading(numbers, readingPicture, state, reading, order);
  showChannels(numbers, state, reading, order);
  showMap(numbers, mapPicture, state, reading);
  showHistogram(numbers, state);
}

build();
document.querySelector("main").hidden = false;
show();
window.addEventListener("hashchange", () => {
  state = stateOf(location.hash);
  show();
});
let width = document.documentElement.clientWidth;
window.addEventListener("resize", () => {
  if (width === document.documentElement.clientWidth) return;
  width = document.documentElement.clientWidth;
  show();
});
for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", show);
document.documentElement.dataset.drawn = String(numbers.rows.length);
