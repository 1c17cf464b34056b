// All layers: the map of where channels leave the prior, and the statistics with plain attention as the baseline.

const MOST_PLACES = 8;

function showMap(numbers, picture, state, reading) {
  const by = COLOURS[state.colour].everywhere ? state.colour : "disagree";
  const {tells, title} = COLOURS[by];
  const shown = COLOURS[by].scale(numbers);
  const height = Math.max(8, Math.min(22, Math.floor(400 / numbers.layers)));
  const rows = Array.from({length: numbers.layers}, (_, layer) => (
    {name: `layer ${layer}`, height, values: COLOURS[by].values(numbers, {layer})}));
  picture.told = (layer, token) => `layer ${layer}, ${named(numbers, token)}\n${tells(rows[layer].values[token])}`
    + (numbers.rowOf.has(token) ? "" : "\nnot shown whole");
  picture.show({first: 0, tokens: numbers.tokens, rows, scale: shown, labels: numbers.axis,
    cross: {row: state.layer, token: reading.token}});
  showKey(at("map-key"), shown);
  at("map-note").textContent = `Every layer and token by ${title}. The box is ${named(numbers, reading.token)} in layer ${state.layer}, `
    + `which is shown above; a click shows another one there.${squeezed(picture)}`;
  at("map").setAttribute("aria-label", `Heat picture of layers by tokens: ${title}. The table below has its largest numbers; `
    + "arrow keys move through its cells, Enter shows one.");
}

// The places where most channels disagree, each an address.
function buildPlaces(numbers) {
  const disagree = numbers.read("map_disagree");
  const kl = numbers.read("map_kl");
  const places = Array.from({length: numbers.layers}, (_, layer) => numbers.rows.map((token) => layer * numbers.tokens + token)).flat();
  places.sort((a, b) => disagree[b] - disagree[a] || kl[b] - kl[a] || a - b);
  fillTable(at("places"), ["where", "channels that disagree", "spent, mean (nats)"], places.slice(0, MOST_PLACES).map((place) => {
    const [layer, token] = [Math.floor(place / numbers.tokens), place % numbers.tokens];
    const text = `layer ${layer}, ${named(numbers, token)}`;
    const link = make("a", {href: `#token=${token}&layer=${layer}`}, text);
    link.addEventListener("click", () => at("reading-title").scrollIntoView());
    return [link, share(disagree[place]), figure(kl[place])];
  }));
}

const BAR = {width: 96, height: 14};

// A number with its bar; the hairline is plain attention's number.
function bar(value, text, largest, baseline) {
  const {width, height} = BAR;
  const x = (number) => (largest > 0 ? (number / largest) * (width - 2) : 0) + 1;
  const picture = draw("svg", {viewBox: `0 0 ${width} ${height}`, class: "bar", "aria-hidden": "true"});
  if (value !== null)
    picture.append(draw("rect", {x: Math.min(x(baseline), x(value)), y: 3, width: Math.abs(x(value) - x(baseline)), height: height - 6}));
  picture.append(draw("path", {d: `M${x(baseline)} 0V${height}`}));
  return make("span", {class: "measure"}, make("span", {}, text), picture);
}

function small({edges, counts}, end) {
  const [width, height] = [120, 22];
  const most = Math.max(...counts);
  const picture = draw("svg", {viewBox: `0 0 ${width} ${height}`, class: "bar", "aria-hidden": "true"}, draw("path", {d: `M0.5 0V${height}`}));
  const x = (value) => (end > 0 ? (value / end) * width : 0);
  counts.forEach((count, bin) => count > 0 && picture.append(draw("rect", {x: x(edges[bin]), y: height * (1 - count / most),
    width: Math.max(1, x(edges[bin + 1]) - x(edges[bin]) - 0.5), height: height * (count / most)})));
  return picture;
}

function buildLayers(numbers, chooseLayer) {
  const {layers} = numbers.about;
  const largest = (name, least) => Math.max(least, ...layers.map((layer) => layer[name] ?? 0));
  const ends = {rank: largest("rank", 1), kl: largest("kl", 0),
    beta: Math.max(0, ...layers.map(({hidden_beta: beta}) => beta?.edges.at(-1) ?? 0))};
  const told = (value) => (value ? make("span", {class: "measure"},
    make("span", {}, `${figure(value.median)}, ${figure(value.low)} to ${figure(value.high)}`), small(value, ends.beta)) : "–");
  const header = ["layer", "effective rank", "channels that disagree (share)", "spent KL(q‖p), mean (nats)",
    "hidden temperature β*: median, and low to high", "inner gate λ, mean", "values at the cap (share)"];
  const withEnergy = layers.some(({energy}) => typeof energy === "number");
  if (withEnergy) header.push("energy F*, mean", "norm of its gradient, mean");
  const row = (first, layer) => [first, bar(layer.rank, figure(layer.rank), ends.rank, 1), bar(layer.disagree, share(layer.disagree), 1, 0),
    bar(layer.kl, figure(layer.kl), ends.kl, 0), told(layer.hidden_beta), figure(layer.lambda), share(layer.capped),
    ...(withEnergy ? [figure(layer.energy), figure(layer.energy_gradient)] : [])];
  const button = (layer) => {
    const one = make("button", {type: "button"}, String(layer));
    one.addEventListener("click", () => chooseLayer(layer));
    return one;
  };
  const baseline = ["plain attention", figure(1), share(0), figure(0), figure(0), figure(0), "–", ...(withEnergy ? ["–", "–"] : [])];
  fillTable(at("layers"), header, [baseline, ...layers.map((layer, place) => row(button(place), layer))]);
}

// The temperatures of the chosen layer, large.
function showHistogram(numbers, {layer}) {
  for (const [place, row] of [...at("layers").tBodies[0].rows].entries()) row.classList.toggle("now", place === layer + 1);
  const told = numbers.about.layers[layer].hidden_beta;
  at("histogram-title").textContent = `Hidden temperatures of layer ${layer}`;
  if (!told) {
    at("histogram").replaceChildren(make("p", {class: "soft"}, "No temperature gives this layer's reads."));
    return fillTable(at("bins"), ["from", "to", "reads"], []);
  }
  const {edges, counts, median, low, high} = told;
  const [width, height, left, top, bottom] = [Math.min(640, at("histogram").clientWidth), 210, 52, 24, 40];
  const most = Math.max(...counts, 1);
  const span = edges.at(-1) - edges[0] || 1;
  const x = (value) => left + ((value - edges[0]) / span) * (width - left - 26);
  const y = (count) => top + (1 - count / most) * (height - bottom - top);
  const words = (text, place) => draw("text", place, text);
  const picture = draw("svg", {viewBox: `0 0 ${width} ${height}`, width, height, class: "chart", role: "img",
    "aria-label": `Histogram of ${grouped(counts.reduce((a, b) => a + b, 0))} hidden temperatures of layer ${layer}: median ${figure(median)}, `
      + `from ${figure(low)} to ${figure(high)}; plain attention has 0.`});
  counts.forEach((count, bin) => picture.append(draw("rect", {x: x(edges[bin]), y: y(count),
    width: Math.max(1, x(edges[bin + 1]) - x(edges[bin]) - 1), height: y(0) - y(count)})));
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const value = edges[0] + part * span;
    picture.append(words(String(+value.toPrecision(3)), {x: x(value), y: height - 22, "text-anchor": "middle"}));
  }
  picture.append(draw("path", {d: `M${left} ${y(0)}H${width - 26}`, class: "axis"}), words(grouped(most), {x: left - 8, y: y(most) + 9, "text-anchor": "end"}),
    words("0", {x: left - 8, y: y(0), "text-anchor": "end"}), words("reads", {x: left - 8, y: (y(0) + y(most)) / 2 + 4, "text-anchor": "end", class: "soft"}),
    words("hidden temperature β* (1 / value; larger is sharper)", {x: (width + left) / 2, y: height - 4, "text-anchor": "middle", class: "soft"}),
    draw("path", {d: `M${x(median)} ${top - 8}V${y(0)}`, class: "median"}), words(`median ${figure(median)}`, {x: x(median) + 5, y: top - 4}));
  if (edges[0] <= 0) picture.append(draw("path", {d: `M${x(0)} 0V${y(0)}`, class: "baseline"}), words("plain attention 0", {x: x(0) + 5, y: 10, class: "soft"}));
  at("histogram").replaceChildren(picture);
  fillTable(at("bins"), ["from", "to", "reads"], counts.map((count, bin) => [figure(edges[bin]), figure(edges[bin + 1]), grouped(count)]));
}
