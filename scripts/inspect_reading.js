// One token in one layer and head: what it reads, and its channels as a table.

const NEAR = [0, 512, 128, 32];  // how many tokens the picture can be narrowed to; 0 is all

// The table's columns. `first` is the direction that sorting begins with: 1 is upward.
const COLUMNS = {
  channel: {title: "channel", first: 1, of: (channels, j) => j, text: String},
  choice: {title: "chose", first: 1, of: ({choice}, j) => choice[j]},
  weight: {title: "its weight", unit: "probability", first: -1, of: ({weight}, j) => weight[j]},
  beta: {title: "hidden temperature β*", unit: "1 / value", first: -1, of: ({hidden_beta}, j) => hidden_beta[j]},
  kl: {title: "spent KL(q‖p)", unit: "nats", first: -1, of: ({kl_qp}, j) => kl_qp[j]},
  gain: {title: "gain F − mean", unit: "value", first: -1, of: ({gain}, j) => gain[j]},
  lambda: {title: "inner gate λ", unit: "0 to 1", first: -1, of: (channels, j) => channels.lambda[j]},
  gate: {title: "outer gate", unit: "factor", first: -1, of: ({outer_gate}, j) => outer_gate[j]},
  most: {title: "β", unit: "1 / value", first: -1, more: true, of: ({beta}, j) => beta[j]},
  mean: {title: "mean", unit: "value", first: -1, more: true, of: ({mean}, j) => mean[j]},
  read: {title: "read u", unit: "value", first: -1, more: true, of: ({gated}, j) => gated[j]},
  energy: {title: "free energy F", unit: "value", first: -1, more: true, of: ({free_energy}, j) => free_energy[j]},
  back: {title: "KL(p‖q)", unit: "nats", first: -1, more: true, of: ({kl_pq}, j) => kl_pq[j]},
  entropy: {title: "entropy of q", unit: "nats", first: -1, more: true, of: ({entropy}, j) => entropy[j]},
  cap: {title: "at the cap", unit: "share of values", first: -1, more: true, of: ({capped}, j) => capped[j]},
};

// Channels in the order of a column ("kl", or "-kl" for the other way round); what is no number stands last.
function sorted(channels, sort) {
  const key = sort.replace("-", "");
  const {of, first} = COLUMNS[key];
  const direction = sort.startsWith("-") ? -first : first;
  return Array.from(channels.choice, (_, channel) => channel).sort((a, b) => {
    const [x, y] = [of(channels, a), of(channels, b)];
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || a - b;
    return direction * (x - y) || a - b;
  });
}

function buildChannels(sortBy) {
  const heads = Object.entries(COLUMNS).map(([key, {title, unit, more}]) => {
    const button = make("button", {type: "button", "data-sort": key}, title);
    button.addEventListener("click", () => sortBy(key));
    const head = make("th", {scope: "col", class: more ? "more" : ""}, button);
    if (unit) head.append(make("span", {class: "unit"}, unit));
    return head;
  });
  at("channels").append(make("thead", {}, make("tr", {}, ...heads)), make("tbody"));
}

function showChannels(numbers, {sort, all}, {channels}, order) {
  const table = at("channels");
  table.classList.toggle("all", all);
  at("all").checked = all;
  const key = sort.replace("-", "");
  for (const head of table.tHead.rows[0].cells) {
    const mine = head.firstChild.dataset.sort === key;
    const up = (COLUMNS[key].first > 0) !== sort.startsWith("-");
    head.setAttribute("aria-sort", !mine ? "none" : up ? "ascending" : "descending");
  }
  const rows = order.map((channel) => {
    const away = channels.choice[channel] !== channels.prior_choice[channel];
    const cells = Object.entries(COLUMNS).map(([name, {of, more, text = figure}]) => {
      const content = name === "choice" ? choiceOf(numbers, channels.choice[channel], away)
        : text(of(channels, channel));
      if (name === "channel") return make("th", {scope: "row"}, content);
      return make("td", {class: more ? "more" : name === "choice" ? "words" : "", "data-of": name}, content);
    });
    return make("tr", {"data-channel": String(channel)}, ...cells);
  });
  table.tBodies[0].replaceChildren(...rows);
}

function choiceOf(numbers, token, away) {
  if (token < 0) return "–";
  const sign = make("span", {class: "sign"}, away ? "◆" : "");
  if (away) sign.append(make("span", {class: "unseen"}, "not the prior's: "));
  const label = short(numbers.labels[token], 18);
  return make("span", {class: away ? "away" : ""}, sign, make("span", {class: "place"}, grouped(token)), ` ${label}`);
}

function showFacts(numbers, state, reading) {
  const {channels, token, rank, priorRank, priorEntropy, energy, energyGradient, prior} = reading;
  const priors = new Set(channels.prior_choice);
  const away = channels.choice.filter((choice, channel) => choice !== channels.prior_choice[channel]).length;
  const costly = sorted(channels, "kl")[0];
  const looksAt = channels.prior_choice[0];
  at("reading-title").textContent = `Token ${grouped(token)} ${quoted(numbers, token)} in layer ${state.layer}, `
    + `head ${state.head}`;
  const first = priors.size > 1 ? "The prior's own choice differs from channel to channel. "
    : `The prior weighs ${named(numbers, looksAt)} most (${figure(prior[looksAt] ?? 0)}). `;
  const then = away === 0 ? "No channel chooses another one."
    : `${plural(away, "channel")} of ${numbers.channels} ${away === 1 ? "chooses" : "choose"} another token; channel `
      + `${costly} spends most, ${figure(channels.kl_qp[costly])} nats, and chose `
      + `${named(numbers, channels.choice[costly])}.`;
  at("summary").textContent = first + then;
  const facts = [
    ["effective rank", figure(rank), "of the channel-by-token weights; attention 1"],
    ["channels that disagree", `${away} of ${numbers.channels}`, "attention 0"],
    ["distinct tokens chosen", String(new Set(channels.choice.filter((choice) => choice >= 0)).size), "attention 1"],
    ["entropy of the prior", `${figure(priorEntropy)} nats`, `over ${plural(reading.end, "token")}`],
  ];
  if (priorRank > 1.00005) facts.push(["rank of the prior", figure(priorRank), "each channel has its own"]);
  if (energy !== null) facts.push(["energy F*", figure(energy), "of its own keys at its query"]);
  if (energyGradient !== null) facts.push(["gradient of F*", figure(energyGradient), "norm"]);
  at("facts").replaceChildren(...facts.map(([name, value, note]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value), make("dd", {class: "soft"}, note))));
}

const HEAVIEST = 10;
const TALLEST = 620;  // pixels that all channels may take

// The tokens of the picture: all that may be looked at, or those nearest to the chosen one.
function windowOf({token, end}, near) {
  const count = near > 0 ? Math.min(near, end) : end;
  return [Math.max(0, Math.min(end - count, token - Math.floor(count / 2))), count];
}

const squeezed = ({step, content: {tokens}}) => (step < 1
  ? ` ${grouped(tokens)} tokens are more than there are pixels: each column shows the largest of its tokens.` : "");

function showReading(numbers, picture, state, reading, order) {
  const {channels, prior, end, chosen} = reading;
  const [first, count] = windowOf(reading, state.near);
  const seenOf = (values) => values.subarray(first, first + count);
  const height = Math.max(4, Math.min(20, Math.floor(TALLEST / order.length)));
  const own = order.map((channel) => numbers.posterior(reading, channel));
  const rows = [{name: "prior", height: 26, values: seenOf(prior)},
    ...own.map(({weights}, place) => (
      {name: String(order[place]), height, gap: place === 0 ? 10 : 0, values: seenOf(weights)}))];
  const marks = order.map((channel, place) => ({row: place + 1, token: channels.choice[channel],
    away: channels.choice[channel] !== channels.prior_choice[channel]}));
  const one = new Set(channels.prior_choice).size === 1 ? channels.prior_choice[0] : undefined;
  picture.told = (row, token) => {
    const lines = [named(numbers, token), `prior ${figure(prior[token])}`];
    if (row === 0) return [...lines, `chosen by ${plural(chosen[token], "channel")}`].join("\n");
    const {weights, rest} = own[row - 1];
    const weight = weights[token] > 0 || rest === 0 ? figure(weights[token]) : `at most ${figure(rest)}`;
    return [...lines, `channel ${order[row - 1]}: posterior ${weight}`].join("\n");
  };
  const shown = weightScale(Math.max(largestOf(prior), largestOf(channels.weight)));
  picture.show({first, tokens: count, rows, scale: shown, labels: numbers.axis, marks, line: one});
  showKey(at("reading-key"), shown);
  const kept = end > numbers.kept ? `, of which the ${numbers.kept} largest weights are kept` : "";
  const outside = marks.filter(({token}) => token >= 0 && (token < first || token >= first + count)).length;
  const further = outside > 0 ? ` ${plural(outside, "channel")} chose a token further away.` : "";
  at("reading-note").textContent = "The top row is the prior. Below it each channel has a row, in the order of the table "
    + `below: its posterior${kept}. A ring is the token a channel chose: orange where it is not the prior's, which the `
    + `dotted line marks.${further}${squeezed(picture)}`;
  at("reading").setAttribute("aria-label", `Heat picture. ${at("summary").textContent} The tables below have its `
    + "numbers; arrow keys move through its cells.");
  const tokens = Array.from(prior.subarray(0, end), (_, token) => token);
  const heaviest = tokens.sort((a, b) => prior[b] - prior[a]).slice(0, HEAVIEST);
  fillTable(at("weights"), ["token", "label", "prior (probability)", "channels that chose it"], heaviest.map((token) =>
    [grouped(token), short(numbers.labels[token]), figure(prior[token]), grouped(chosen[token])]));
}
