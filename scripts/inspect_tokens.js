// The tokens: what they are called, what they are coloured by, and the strip to choose one from.

const quoted = (numbers, token) => `“${short(numbers.labels[token])}”`;
const named = (numbers, token) => (token < 0 ? "no token" : `token ${grouped(token)} ${quoted(numbers, token)}`);

// What tokens can be coloured by: values(numbers, state, reading) has a number for each; everywhere: in every layer.
const COLOURS = {
  disagree: {
    title: "channels that disagree", everywhere: true,
    tells: (value) => `${share(value)} of channels choose another token than the prior`,
    values: (numbers, {layer}) => numbers.read("map_disagree", layer),
    scale: (numbers) => scale("share of channels", 0, roundEnd(largestOf(numbers.read("map_disagree")))),
  },
  kl: {
    title: "nats spent", everywhere: true, tells: (value) => `${figure(value)} nats spent, mean over channels`,
    values: (numbers, {layer}) => numbers.read("map_kl", layer),
    scale: (numbers) => scale("nats, mean over channels", 0, largestOf(numbers.read("map_kl"))),
  },
  rank: {
    title: "effective rank", everywhere: true, tells: (value) => `effective rank ${figure(value)}, mean over heads`,
    values: (numbers, {layer}) => numbers.read("map_rank", layer),
    scale: (numbers) => scale("effective rank, mean over heads", 1, largestOf(numbers.read("map_rank"))),
  },
  prior: {
    title: "prior of the chosen token", tells: (value) => `prior ${figure(value)}`,
    values: (numbers, state, reading) => reading.prior,
    scale: (numbers, state, reading) => weightScale(largestOf(reading.prior)),
  },
  chosen: {
    title: "channels that chose it", tells: (value) => `chosen by ${plural(value, "channel")}`,
    values: (numbers, state, reading) => reading.chosen, scale: (numbers) => scale("channels", 0, numbers.channels),
  },
};
const largestOf = (values) => values.reduce((a, b) => (b > a ? b : a), 0);

// The tokens as text, segments or patches over a picture; those in `rows` are radio buttons, the others are only seen.
function buildTokens(numbers, choose) {
  const {kind, tokens, grid, picture} = numbers.about;
  const strip = at("tokens");
  strip.className = kind;
  strip.classList.toggle("some", numbers.rows.length < tokens.length);
  const longest = Math.max(...numbers.labels.map((label) => label.length));
  strip.style.setProperty("--least", `${Math.min(11, 0.5 * longest)}rem`);
  const cells = numbers.labels.map((label, token) => {
    const text = label.split(/(^[␣⏎]+|[␣⏎]+$)/).map((part) =>
      (/^[␣⏎]/.test(part) ? make("span", {class: "blank"}, part) : part));
    const row = numbers.rowOf.get(token);
    return row === undefined ? make("span", {class: "token"}, ...text)
      : make("span", {class: "token whole", role: "radio", tabindex: "-1", "data-row": String(row)}, ...text);
  });
  const first = grid ? grid.first : tokens.length;
  cells.slice(0, first).forEach((cell, token) => {
    strip.append(cell);
    if (kind === "text" && tokens[token].includes("\n")) strip.append(make("br"));
  });
  if (grid) {
    const patches = make("div", {class: "patches"}, ...cells.slice(first));
    patches.style.setProperty("--columns", grid.columns);
    patches.style.aspectRatio = `${grid.columns} / ${grid.rows}`;
    if (picture) patches.prepend(make("img", {src: picture, alt: "What the model was shown"}));
    strip.append(patches);
  }
  strip.setAttribute("role", "radiogroup");
  strip.setAttribute("aria-labelledby", "tokens-title");
  const rowAt = (target) => target.closest?.("[data-row]")?.dataset.row;
  strip.addEventListener("click", (event) => rowAt(event.target) && choose(+rowAt(event.target)));
  strip.addEventListener("keydown", (event) => {
    const down = grid ? grid.columns : 1;
    const steps = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -down, ArrowDown: down, Home: -Infinity, End: Infinity};
    if (!(event.key in steps) || !rowAt(event.target)) return;
    event.preventDefault();
    const last = numbers.rows.length - 1;
    const row = Math.min(last, Math.max(0, +rowAt(event.target) + steps[event.key]));
    choose(row, true);
    cells[numbers.rows[row]].focus({preventScroll: false});
  });
  return cells;
}

function showTokens(numbers, cells, state, reading) {
  const {values, scale, tells} = COLOURS[state.colour];
  const shown = scale(numbers, state, reading);
  const all = values(numbers, state, reading);
  const colors = heat();
  const told = (token) => `${named(numbers, token)}\n${tells(all[token] ?? 0)}`
    + (numbers.rowOf.has(token) ? "" : "\nnot shown whole");
  cells.forEach((cell, token) => {
    const color = colors(shown.of(all[token] ?? 0));
    cell.style.backgroundColor = css(color);
    cell.style.color = inkOn(color);
    cell.told = () => told(token);
  });
  numbers.rows.forEach((token, row) => {
    cells[token].setAttribute("aria-label", told(token).replace("\n", ", "));
    cells[token].setAttribute("aria-checked", String(row === state.row));
    cells[token].tabIndex = row === state.row ? 0 : -1;
  });
  const [strip, cell] = [at("tokens"), cells[reading.token]];
  const above = cell.offsetTop;
  if (above < strip.scrollTop || above + cell.offsetHeight > strip.scrollTop + strip.clientHeight)
    strip.scrollTop = above - strip.clientHeight / 2;
  showKey(at("colour-key"), shown);
}
