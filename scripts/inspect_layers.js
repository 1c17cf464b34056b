// All layers: the map of where channels leave the prior, and the statistics with plain attention as the baseline.

const MOST_PLACES = 8;

function showMap(numbers, picture, state, reading) {
  const by = COLOURS[state.colour].everywhere ? state.colour : "disagree";
  const {tells, title, values} = COLOURS[by];
  const shown = COLOURS[by].scale(numbers);
  const height = Math.max(8, Math.min(22, Math.floor(400 / numbers.layers)));
  const rows = Array.from({length: numbers.layers}, (_, layer) => (
    {name: `layer ${layer}`, height, values: values(numbers, {layer})}));
  picture.told = (layer, token) => `layer ${layer}, ${named(numbers, token)}\n${tells(rows[layer].values[token])}`
    + (numbers.rowOf.has(token) ? "" : "\nnot shown whole");
  const cross = {row: state.layer, token: reading.token};
  picture.show({first: 0, tokens: numbers.tokens, rows, scale: shown, labels: numbers.axis, cross});
  showKey(at("map-key"), shown);
  at("map-note").textContent = `Every layer and token by ${title}. The box is ${named(numbers, reading.token)} in layer `
    + `${state.layer}, which is shown above; a click shows another one there.${squeezed(picture)}`;
  at("map").setAttribute("aria-label", `Heat picture of layers by tokens: ${title}. The table below has its largest `
    + "numbers; arrow keys move through its cells, Enter shows one.");
}

// The places where most channels disagree, each an address.
function buildPlaces(numbers) {
  const disagree = numbers.read("map_disagree");
  const kl = numbers.read("map_kl");
  const layers = Array.from({length: numbers.layers}, (_, layer) => layer);
  const places = layers.flatMap((layer) => numbers.rows.map((token) => layer * numbers.tokens + token));
  places.sort((a, b) => disagree[b] - disagree[a] || kl[b] - kl[a] || a - b);
  const rows = places.slice(0, MOST_PLACES).map((place) => {
    const [layer, token] = [Math.floor(place / numbers.tokens), place % numbers.tokens];
    const link = make("a", {href: `#token=${token}&layer=${layer}`}, `layer ${layer}, ${named(numbers, token)}`);
    link.addEventListener("click", () => at("reading-title").scrollIntoView());
    return [link, share(disagree[place]), figure(kl[place])];
  });
  fillTable(at("places"), ["where", "channels that disagree", "spent, mean (nats)"], rows);
}

// A number with its bar; the hairline is plain attention's number.
function bar(value, text, largest, baseline) {
  const [width, height] = [96, 14];
  const x = (number) => 1 + (largest > 0 ? number / largest : 0) * (width - 2);
  const picture = draw("svg", {viewBox: `0 0 ${width} ${height}`, class: "bar", "aria-hidden": "true"});
  if (value !== null) {
    const [from, to] = [x(baseline), x(value)].sort((a, b) => a - b);
    picture.append(draw("rect", {x: from, y: 3, width: to - from, height: height - 6}));
  }
  picture.append(draw("path", {d: `M${x(baseline)} 0V${height}`}));
  return make("span", {class: "measure"}, make("span", {}, text), picture);
}

const isKnown = (beta) => beta !== null && beta.median !== null;

function columns({edges, counts}, x, y) {
  return counts.map((count, bin) => draw("rect", {x: x(edges[bin]), y: y(count),
    width: Math.max(0.5, x(edges[bin + 1]) - x(edges[bin]) - 0.5), height: y(0) - y(count)}));
}

// From the smallest to the largest temperature of all layers, so that they can be compared.
function smallHistogram(beta, low, high) {
  const [width, height] = [120, 22];
  const most = Math.max(1, ...beta.counts);
  const x = (value) => 1 + ((value - low) / (high - low || 1)) * (width - 2);
  const hairline = draw("path", {d: `M${x(0)} 0V${height}`});
  return draw("svg", {viewBox: `0 0 ${width} ${height}`, class: "bar", "aria-hidden": "true"}, hairline,
    ...columns(beta, x, (count) => height * (1 - count / most)));
}

// The statistics of a layer: a header, what plain attention has, and a layer's cell.
function measuresOf({layers}) {
  const largest = (name, least) => Math.max(least, ...layers.map((layer) => layer[name] ?? 0));
  const has = (name) => layers.some((layer) => typeof layer[name] === "number");
  const barOf = (name, text, end, baseline) => (layer) => bar(layer[name], text(layer[name]), end, baseline);
  const edges = layers.flatMap(({hidden_beta: beta}) => (isKnown(beta) ? beta.edges : []));
  const [low, high] = [Math.min(0, ...edges), Math.max(0, ...edges)];
  const temperatures = ({hidden_beta: beta}) => (!isKnown(beta) ? "–" : make("span", {class: "measure"},
    make("span", {}, `${figure(beta.median)}, ${figure(beta.low)} to ${figure(beta.high)}`),
    smallHistogram(beta, low, high)));
  return [
    {title: "effective rank", baseline: figure(1), cell: barOf("rank", figure, largest("rank", 1), 1)},
    {title: "channels that disagree (share)", baseline: share(0), cell: barOf("disagree", share, 1, 0)},
    ...(has("moved") ? [{title: "weight moved (share)", baseline: share(0), cell: barOf("moved", share, 1, 0)}] : []),
    {title: "spent KL(q‖p), mean (nats)", baseline: figure(0), cell: barOf("kl", figure, largest("kl", 0), 0)},
    {title: "hidden temperature β*: median, 10 % to 90 %", baseline: figure(0), cell: temperatures},
    {title: "inner gate λ, mean", baseline: figure(0), cell: (layer) => figure(layer.lambda)},
    {title: "values at the cap (share)", baseline: "–", cell: (layer) => share(layer.capped)},
    ...(has("energy") ? [{title: "energy F*, mean", baseline: "–", cell: (layer) => figure(layer.energy)},
      {title: "norm of its gradient, mean", baseline: "–", cell: (layer) => figure(layer.energy_gradient)}] : []),
  ];
}

function buildLayers({about}, chooseLayer) {
  const measures = measuresOf(about);
  const button = (layer) => {
    const one = make("button", {type: "button"}, String(layer));
    one.addEventListener("click", () => chooseLayer(layer));
    return one;
  };
  fillTable(at("layers"), ["layer", ...measures.map(({title}) => title)], [
    ["plain attention", ...measures.map(({baseline}) => baseline)],
    ...about.layers.map((layer, place) => [button(place), ...measures.map(({cell}) => cell(layer))]),
  ]);
}

// The temperatures of the chosen layer, large.
function showHistogram({about}, {layer}) {
  for (const [place, row] of [...at("layers").tBodies[0].rows].entries())
    row.classList.toggle("now", place === layer + 1);
  at("histogram-title").textContent = `Hidden temperatures of layer ${layer}`;
  const beta = about.layers[layer].hidden_beta;
  at("histogram").replaceChildren(isKnown(beta) ? histogram(beta, layer)
    : make("p", {class: "soft"}, "No temperature gives this layer's reads."));
  const {edges, counts} = isKnown(beta) ? beta : {edges: [], counts: []};
  fillTable(at("bins"), ["from", "to", "reads"], counts.map((count, bin) =>
    [figure(edges[bin]), figure(edges[bin + 1]), grouped(count)]));
}

function histogram(beta, layer) {
  const {edges, counts, median, low, high} = beta;
  const [width, height, left, right, top, bottom] = [Math.min(640, at("histogram").clientWidth), 210, 52, 26, 24, 40];
  const most = Math.max(1, ...counts);
  const [start, end] = [Math.min(0, edges[0]), edges.at(-1)];
  const x = (value) => left + ((value - start) / (end - start || 1)) * (width - left - right);
  const y = (count) => top + (1 - count / most) * (height - bottom - top);
  const middle = x(median);
  const words = (text, place, kind = "", anchor = "start") =>
    draw("text", {...place, class: kind, "text-anchor": anchor}, text);
  const line = (d, kind) => draw("path", {d, class: kind});
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => start + part * (end - start)).map((value) =>
    words(String(+value.toPrecision(3)), {x: x(value), y: height - 22}, "", "middle"));
  const all = grouped(counts.reduce((a, b) => a + b, 0));
  return draw("svg", {viewBox: `0 0 ${width} ${height}`, width, height, class: "chart", role: "img",
    "aria-label": `Histogram of ${all} hidden temperatures of layer ${layer}: median ${figure(median)}, from `
      + `${figure(low)} to ${figure(high)}; plain attention has 0.`},
    ...columns(beta, x, y), ...ticks, line(`M${left} ${y(0)}H${width - right}`, "axis"),
    words(grouped(most), {x: left - 8, y: y(most) + 9}, "", "end"), words("0", {x: left - 8, y: y(0)}, "", "end"),
    words("reads", {x: left - 8, y: (y(0) + y(most)) / 2 + 4}, "soft", "end"),
    words("hidden temperature β* (1 / value; larger is sharper)", {x: (width + left - right) / 2, y: height - 4}, "soft",
      "middle"),
    line(`M${middle} ${top - 8}V${y(0)}`, "median"), words(`median ${figure(median)}`, {x: middle + 5, y: top - 4}),
    line(`M${x(0)} 0V${y(0)}`, "baseline"), words("plain attention 0", {x: x(0) + 5, y: 10}, "soft"));
}
