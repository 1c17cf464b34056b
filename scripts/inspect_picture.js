// Heat pictures on canvas: rows of numbers over tokens, drawn as large as they are seen.

const STOPS = 6;

// The page's colours of 0 to 1, which light, dark and print have each their own of.
function heat() {
  const style = getComputedStyle(document.documentElement);
  const stops = Array.from({length: STOPS}, (_, stop) => {
    const [, ...parts] = style.getPropertyValue(`--heat-${stop}`).trim().match(/^#(..)(..)(..)$/);
    return parts.map((part) => parseInt(part, 16));
  });
  return (value) => {
    const place = Math.min(1, Math.max(0, value || 0)) * (STOPS - 1);
    const stop = Math.min(STOPS - 2, Math.floor(place));
    return stops[stop].map((part, i) => Math.round(part + (stops[stop + 1][i] - part) * (place - stop)));
  };
}
const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;
// Black or white, whichever is read better on a colour (relative luminance as in WCAG 2).
function inkOn(color) {
  const [red, green, blue] = color.map((part) => (part <= 10 ? part / 3295 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

// How numbers become colours: a scale has a unit and the numbers that its key names, the last being the largest.
function scale(unit, low, high) {
  return {unit, of: (value) => (high > low ? Math.max(0, (value - low) / (high - low)) : 0), ticks: [low, high]};
}

// Shares end with a round number, so that most views have the same end. Of weights small ones matter too.
const roundEnd = (largest) => [0.001, 0.003, 0.01, 0.03, 0.1, 0.3].find((round) => round >= largest) ?? 1;
function weightScale(largest) {
  const end = roundEnd(largest);
  const unit = "weight (probability, cube-root colours)";
  return {unit, of: (value) => Math.cbrt(value / end), ticks: [0, end / 100, end / 10, end]};
}

function showKey(element, {unit, of, ticks}) {
  const marks = ticks.map((tick) => {
    const mark = make("span", {}, Number.isInteger(tick) ? grouped(tick) : String(+tick.toPrecision(3)));
    mark.style.left = `${100 * of(tick)}%`;
    return mark;
  });
  if (ticks[0] === ticks.at(-1)) marks.pop();
  element.replaceChildren(make("span", {class: "unit"}, unit), make("span", {class: "ramp"}, ...marks));
}

class Picture {
  static GUTTER = 58;
  static MARGIN = 16;
  static WIDEST = 40;  // a token

  // told(row, token): what a cell says; picked(row, token): what choosing it does.
  constructor(canvas, told, picked = null) {
    Object.assign(this, {canvas, told, picked, cursor: null});
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerdown", (event) => this.point(event));
    canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.leave());
    canvas.addEventListener("pointercancel", () => this.leave());
    canvas.addEventListener("blur", () => this.leave());
    canvas.addEventListener("click", (event) => this.point(event) && this.pick());
    canvas.addEventListener("keydown", (event) => this.press(event));
  }

  // content: {first, tokens, rows: [{name, height, gap, values}], scale, labels, marks: [{row, token, away}], line,
  // cross}: of so many tokens from the first on; values are of these, all else counts tokens from the very first.
  show(content) {
    this.content = content;
    this.cursor = null;
    this.draw();
  }

  draw() {
    const {canvas, content} = this;
    const {first, tokens, rows} = content;
    const width = Math.max(120, canvas.parentElement.clientWidth);
    const plot = width - Picture.GUTTER - Picture.MARGIN;
    this.step = Math.min(Picture.WIDEST, plot / tokens);
    this.pixels = Math.min(plot, Math.ceil(this.step * tokens));
    this.tops = [];
    let height = 2;
    for (const row of rows) {
      height += row.gap || 0;
      this.tops.push(height);
      height += row.height;
    }
    this.bottom = height;
    const longest = Math.max(...content.labels.slice(first, first + tokens).map((label) => [...label].length));
    this.named = this.step >= 11 ? (longest <= 2 || 7 * longest < this.step ? "upright" : "turned") : "counted";
    height += this.named === "turned" ? Math.min(84, 14 + 6.5 * Math.min(12, longest)) : 22;
    const density = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * density);
    canvas.height = Math.round(height * density);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    this.pen = canvas.getContext("2d");
    this.pen.scale(density, density);
    const style = getComputedStyle(document.documentElement);
    this.color = (name) => style.getPropertyValue(`--${name}`).trim();
    this.font = `11px ${this.color("plain")}`;
    this.fill();
    this.name();
    this.mark();
  }

  // Cells; where tokens are more than pixels, a pixel has the largest of its tokens.
  fill() {
    const {pen, step, content: {rows, tokens, scale: {of}}} = this;
    const colors = heat();
    rows.forEach((row, place) => {
      pen.fillStyle = this.color("heat-0");
      pen.fillRect(Picture.GUTTER, this.tops[place], step * tokens, row.height);
      const columns = step < 1 ? this.pixels : tokens;
      for (let column = 0; column < columns; column++) {
        const value = step < 1 ? row.values[this.largest(row.values, column)] : row.values[column];
        if (!(of(value) > 0.004)) continue;
        pen.fillStyle = css(colors(of(value)));
        const [x, wide] = step < 1 ? [column, 1] : [column * step, step - (step > 5 ? 1 : 0)];
        pen.fillRect(Picture.GUTTER + x, this.tops[place], wide, row.height - (row.height > 5 ? 1 : 0));
      }
    });
  }

  // The token of the largest value among those of a column of pixels.
  largest(values, column) {
    const first = Math.ceil(column / this.step - 0.5);  // a token belongs where its middle is
    const end = Math.min(values.length, Math.ceil((column + 1) / this.step - 0.5));
    let best = Math.min(first, values.length - 1);
    for (let token = best + 1; token < end; token++) if (values[token] > values[best]) best = token;
    return best;
  }

  name() {
    const {pen, step, content: {rows, first, tokens, labels}} = this;
    pen.font = this.font;
    pen.fillStyle = this.color("soft");
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    let free = -Infinity;
    rows.forEach((row, place) => {
      const middle = this.tops[place] + row.height / 2;
      if (middle - free < 11) return;
      pen.fillText(row.name, Picture.GUTTER - 7, middle);
      free = middle;
    });
    const center = (token) => Picture.GUTTER + (token - first + 0.5) * step;
    if (this.named === "counted") {
      const apart = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000].find((n) => n * step >= 48) || tokens;
      pen.textAlign = "center";
      for (let token = Math.ceil(first / apart) * apart; token < first + tokens; token += apart) {
        pen.fillRect(center(token), this.bottom, 1, 4);
        pen.fillText(grouped(token), center(token), this.bottom + 13);
      }
      return;
    }
    for (let token = first; token < first + tokens; token++) {
      pen.save();
      pen.translate(center(token), this.bottom + (this.named === "turned" ? 6 : 12));
      if (this.named === "turned") pen.rotate(-Math.PI / 2);
      pen.textAlign = this.named === "turned" ? "right" : "center";
      pen.fillText(short(labels[token], 12), 0, 0);
      pen.restore();
    }
  }

  // What was chosen is ringed; a line goes down from what the prior would choose.
  mark() {
    const {pen, step, content: {marks = [], rows, first, tokens, line, cross}} = this;
    const left = (token) => Picture.GUTTER + (token - first) * step;
    const isSeen = (token) => token >= first && token < first + tokens;
    if (line !== undefined && isSeen(line)) {
      pen.fillStyle = this.color("ink");
      const x = Math.round(left(line) + step / 2) - 0.5;
      for (let y = this.tops[0]; y < this.bottom; y += 4) pen.fillRect(x, y, 1, 2);
    }
    for (const {row, token, away} of marks.filter((mark) => isSeen(mark.token))) {
      const [top, height] = [this.tops[row], rows[row].height];
      const color = this.color(away ? "vermilion" : "ink");
      if (step >= 8 && height >= 8) {
        pen.strokeStyle = color;
        pen.lineWidth = 2;
        pen.strokeRect(left(token) + 1, top + 1, step - 3, height - 3);
      } else {
        const size = Math.min(5, height);
        pen.fillStyle = color;
        pen.fillRect(left(token) + step / 2 - size / 2, top + (height - size) / 2, size, size);
      }
    }
    if (cross) this.box(cross.row, cross.token, this.color("vermilion"));
    if (this.cursor) this.box(this.cursor.row, this.cursor.token, this.color("ink"));
  }

  box(row, token, color) {
    const wide = Math.max(this.step, 5);
    const x = Picture.GUTTER + (token - this.content.first + 0.5) * this.step - wide / 2;
    this.pen.strokeStyle = color;
    this.pen.lineWidth = 2;
    this.pen.strokeRect(x - 0.5, this.tops[row] - 1, wide, this.content.rows[row].height + 1);
  }

  point(event) {
    const {left, top} = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - left - Picture.GUTTER, event.clientY - top];
    const row = this.tops.findLastIndex((start) => start <= y);
    if (row < 0 || y >= this.bottom || x < 0 || x >= this.pixels) return this.leave();
    const {rows, first, tokens} = this.content;
    const column = this.step < 1 ? this.largest(rows[row].values, Math.floor(x)) : Math.floor(x / this.step);
    this.move(row, first + Math.min(tokens - 1, column), event.clientX, event.clientY);
    return true;
  }

  move(row, token, x, y, aloud = false) {
    if (this.cursor?.row !== row || this.cursor?.token !== token) {
      this.cursor = {row, token};
      this.draw();
    }
    tell(this.told(row, token), x, y, aloud);
  }

  leave() {
    tell("");
    if (!this.cursor) return false;
    this.cursor = null;
    this.draw();
    return false;
  }

  pick() {
    if (this.picked && this.cursor) this.picked(this.cursor.row, this.cursor.token);
  }

  press(event) {
    const steps = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
    const {rows, first, tokens, cross, line} = this.content;
    if (event.key === "Escape") return this.leave();
    const picks = event.key === "Enter" || event.key === " ";
    if (!picks && !(event.key in steps)) return false;
    event.preventDefault();
    if (picks) return this.pick();
    const [down, right] = steps[event.key];
    const {row, token} = this.cursor || {row: cross?.row ?? 0, token: cross?.token ?? line ?? 0};
    const within = (value, start, end) => Math.min(end - 1, Math.max(start, value));
    const next = [within(row + down, 0, rows.length), within(token + right, first, first + tokens)];
    const {left, top} = this.canvas.getBoundingClientRect();
    this.move(...next, left + Picture.GUTTER + (next[1] - first + 0.5) * this.step, top + this.tops[next[0]], true);
    return true;
  }
}
