// view: draws the visible part of the run. A row costs as many steps as
// it has pixels, however many bars there are.

const canvas = $("graph"), pen = canvas.getContext("2d");
const axis = $("axis"), axisPen = axis.getContext("2d");
const overview = $("overview"), overviewPen = overview.getContext("2d");
const gutter = () => Math.min(170, canvas.clientWidth / 4);
const barHeight = 18, headHeight = 26, counterHeight = 42, trackGap = 8;

// Hue, saturation, lightness in the light and in the dark.
const paints = {
  python: [[212, 72, 80], [212, 48, 38]], launch: [[152, 52, 66], [152, 44, 34]],
  kernel: [[96, 56, 62], [96, 46, 34]],
  copy: [[34, 92, 70], [30, 66, 40]], memset: [[48, 80, 68], [46, 56, 36]],
  wait: [[354, 72, 80], [354, 46, 42]], load: [[276, 52, 80], [276, 34, 44]],
  span: [[184, 46, 72], [184, 40, 34]], nccl: [[322, 62, 80], [322, 40, 44]],
  cpu: [[140, 34, 74], [140, 26, 34]], "off-cpu": [[230, 10, 90], [230, 8, 26]],
  syscall: [[22, 50, 80], [22, 36, 38]], call: [[250, 10, 84], [250, 8, 38]],
};
const shades = new Map();
function paint(category, name) {
  const key = `${category}/${name}/${dark.matches}`;
  let shade = shades.get(key);
  if (!shade) {
    const word = data.categories[category], [h, s, l] = (paints[word] || paints.call)[dark.matches ? 1 : 0];
    let hash = 7;
    for (const c of data.texts[name]) hash = (hash * 31 + c.codePointAt(0)) >>> 0;
    const shift = word === "cpu" || word === "off-cpu" ? 0 : (hash % 11) - 5;
    shade = `hsl(${h + shift * 2} ${s}% ${l + shift}%)`;
    shades.set(key, shade);
  }
  return shade;
}

const shown = { from: 0, to: Math.max(data.length, 1), arrows: true, match: null, off: new Set(), hover: null, chosen: null };
const toX = t => gutter() + (t - shown.from) / (shown.to - shown.from) * (canvas.clientWidth - gutter());
const toTime = x => shown.from + (x - gutter()) / (canvas.clientWidth - gutter()) * (shown.to - shown.from);

// Where each track is, from the top; the height of all.
function place() {
  let y = 0;
  for (const p of processes) {
    p.y = y;
    y += headHeight;
    for (const c of p.counters) { c.y = y; y += counterHeight + trackGap; }
    for (const t of p.tracks) { t.y = y; y += t.rows.length * barHeight + trackGap; }
  }
  return y + 6;
}

function setSize(c, context, height) {
  const ratio = devicePixelRatio || 1, width = c.clientWidth;
  c.width = Math.round(width * ratio);
  c.height = Math.round(height * ratio);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.textBaseline = "middle";
  return width;
}

let look;
const colour = name => look.getPropertyValue(name).trim();

function draw() {
  look = getComputedStyle(document.body);
  const height = place();
  canvas.style.height = `${height}px`;
  const width = setSize(canvas, pen, height);
  if (!width) return;
  pen.save();
  pen.beginPath();
  pen.rect(gutter(), 0, width - gutter(), height);
  pen.clip();
  drawGrid(pen, 0, height);
  for (const p of processes) {
    for (const c of p.counters) drawCounter(c, width);
    for (const t of p.tracks) t.rows.forEach((row, depth) => drawRow(row, t.y + depth * barHeight, width));
  }
  if (shown.arrows) drawArrows();
  pen.restore();
  drawNames(width);
  drawAxis();
  drawOverview();
}

function steps() {
  const most = Math.max(2, (canvas.clientWidth - gutter()) / 110), raw = (shown.to - shown.from) / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map(m => m * power).find(s => s >= raw);
}

function drawGrid(on, top, bottom) {
  const step = steps();
  on.strokeStyle = colour("--line");
  on.lineWidth = 1;
  on.beginPath();
  for (let t = Math.ceil(shown.from / step) * step; t <= shown.to; t += step) {
    const x = Math.round(toX(t)) + 0.5;
    on.moveTo(x, top);
    on.lineTo(x, bottom);
  }
  on.stroke();
}

function drawAxis() {
  const width = setSize(axis, axisPen, 28), step = steps();
  drawGrid(axisPen, 20, 28);
  axisPen.fillStyle = colour("--soft");
  axisPen.font = `11px ${look.fontFamily}`;
  axisPen.textAlign = "center";
  const unit = step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : step >= 100 ? [1e3, "µs"] : [1, "ns"];
  const places = Math.max(0, Math.round(-Math.log10(step / unit[0]) + 0.4));
  for (let t = Math.ceil(shown.from / step) * step; t <= shown.to; t += step) {
    const x = toX(t);
    if (x > gutter() + 20 && x < width - 24) axisPen.fillText(`${(t / unit[0]).toFixed(places)} ${unit[1]}`, x, 11);
  }
  axisPen.textAlign = "left";
}

function drawRow(row, y, width) {
  const ink = dark.matches ? "#eef0f4" : "#16181b", left = gutter(), h = barHeight - 1;
  const perPixel = (shown.to - shown.from) / (width - left);
  pen.font = `11px ${look.fontFamily}`;
  for (let i = row.after(shown.from); i < row.length && row.from[i] < shown.to;) {
    const x = Math.max(toX(row.from[i]), left), end = Math.min(toX(row.to[i]), width);
    const w = Math.max(end - x, 0.7);
    if (!shown.off.has(row.category[i])) {
      const dim = shown.match && !shown.match(row, i);
      pen.globalAlpha = dim ? 0.18 : 1;
      pen.fillStyle = paint(row.category[i], row.name[i]);
      pen.fillRect(x, y, w > 3 ? w - 0.7 : w, h);
      if (w > 22) {
        pen.fillStyle = ink;
        const count = row.count[i] > 1 ? ` ×${row.count[i]}` : "";
        pen.fillText(fit(data.texts[row.name[i]] + count, w - 8, pen), x + 4, y + h / 2 + 0.5);
      }
      if (is(shown.chosen, row, i) || is(shown.hover, row, i)) {
        pen.strokeStyle = is(shown.chosen, row, i) ? colour("--accent") : ink;
        pen.lineWidth = 1.5;
        pen.strokeRect(x + 0.75, y + 0.75, Math.max(w - 2, 0.5), h - 1.5);
      }
    }
    // Bars within this pixel are not visible.
    i = w < 1 ? Math.max(i + 1, row.after(row.from[i] + perPixel * 0.7)) : i + 1;
  }
  pen.globalAlpha = 1;
}

const is = (a, row, i) => a && a.row === row && a.i === i;

function drawCounter(c, width) {
  const base = c.y + counterHeight, h = counterHeight - 6, left = gutter();
  let low = 0, high = c.at.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (c.at[mid] > shown.from) high = mid; else low = mid + 1;
  }
  pen.beginPath();
  pen.moveTo(left, base);
  let y = base - (low > 0 ? c.value[low - 1] / (c.top || 1) * h : 0);
  pen.lineTo(left, y);
  for (let i = low; i < c.at.length && c.at[i] < shown.to; i++) {
    const x = toX(c.at[i]);
    pen.lineTo(x, y);
    y = base - c.value[i] / (c.top || 1) * h;
    pen.lineTo(x, y);
  }
  pen.lineTo(width, y);
  pen.strokeStyle = colour("--accent");
  pen.lineWidth = 1.2;
  pen.stroke();
  pen.lineTo(width, base);
  pen.globalAlpha = 0.18;
  pen.fillStyle = colour("--accent");
  pen.fill();
  pen.globalAlpha = 1;
}

// Arrows lead from a bar's upper edge to the lower one of a bar above, or the other
// way round. They are drawn where they are far enough apart to be distinguished.
function drawArrows() {
  let last = -100;
  pen.strokeStyle = pen.fillStyle = colour("--mark");
  pen.lineWidth = 1.2;
  for (const a of arrows) {
    if (a.until < shown.from || a.at > shown.to || !tracks[a.from] || !tracks[a.to]) continue;
    const x1 = toX(a.at), x2 = toX(a.until);
    if (x2 - last < 24) continue;
    last = x2;
    const from = edges(tracks[a.from], a.at), to = edges(tracks[a.to], a.until);
    const up = to.top < from.top, y1 = up ? from.top : from.bottom, y2 = up ? to.bottom : to.top;
    const bend = Math.min(Math.abs(y2 - y1) * 0.6, 60) * (up ? -1 : 1), tip = up ? 5 : -5;
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2 + tip);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x2, y2);
    pen.lineTo(x2 - 3.5, y2 + tip * 1.3);
    pen.lineTo(x2 + 3.5, y2 + tip * 1.3);
    pen.fill();
  }
}

// The edges of the deepest bar at a time.
function edges(track, t) {
  for (let depth = track.rows.length - 1; depth >= 0; depth--) {
    const row = track.rows[depth], i = row.after(t);
    if (i < row.length && row.from[i] <= t) return { top: track.y + depth * barHeight, bottom: track.y + (depth + 1) * barHeight - 1 };
  }
  return { top: track.y, bottom: track.y + barHeight };
}

function drawNames(width) {
  const left = gutter(), small = `11px ${look.fontFamily}`;
  for (const p of processes) {
    pen.fillStyle = colour("--hover");
    pen.fillRect(0, p.y, width, headHeight - 6);
    pen.fillStyle = colour("--ink");
    pen.font = `600 12px ${look.fontFamily}`;
    pen.fillText(fit(p.name, width - 20, pen), 10, p.y + (headHeight - 6) / 2);
    pen.font = small;
    for (const c of p.counters) {
      pen.fillStyle = colour("--soft");
      pen.fillText(fit(c.name, left - 20, pen), 10, c.y + 14);
      pen.fillText(fit(`≤ ${amount(c, c.top)}`, left - 20, pen), 10, c.y + 30);
    }
    for (const t of p.tracks) {
      pen.fillStyle = colour("--soft");
      pen.fillText(fit(t.name, left - 20, pen), 10, t.y + barHeight / 2);
    }
  }
}

// The whole run: how much of each pixel's time the deepest rows are busy.
let profile = null;
function drawOverview() {
  const width = setSize(overview, overviewPen, 46);
  if (!profile || profile.width !== width) profile = { width, ...measure(width) };
  overviewPen.fillStyle = colour("--accent");
  overviewPen.globalAlpha = 0.55;
  for (let x = 0; x < width; x++) {
    const h = Math.sqrt(profile.busy[x] / profile.top) * 38; // a spike hides nothing
    if (h > 0) overviewPen.fillRect(x, 44 - Math.max(h, 1), 1, Math.max(h, 1));
  }
  overviewPen.globalAlpha = 1;
  const a = shown.from / data.length * width, b = shown.to / data.length * width;
  overviewPen.fillStyle = dark.matches ? "rgb(0 0 0 / .5)" : "rgb(255 255 255 / .7)";
  overviewPen.fillRect(0, 0, a, 46);
  overviewPen.fillRect(b, 0, width - b, 46);
  overviewPen.strokeStyle = colour("--accent");
  overviewPen.lineWidth = 1.5;
  overviewPen.strokeRect(a + 0.75, 0.75, Math.max(b - a - 1.5, 1), 44.5);
}

function measure(width) {
  const busy = new Float64Array(width + 1), scale = width / Math.max(data.length, 1);
  const submits = new Set(["launch", "kernel", "copy", "memset"].map(w => data.categories.indexOf(w)));
  for (const t of tracks) for (const row of t.rows) for (let i = 0; i < row.length; i++) {
    if (submits.size && !submits.has(row.category[i])) continue;
    const first = Math.floor(row.from[i] * scale), last = Math.min(Math.floor(row.to[i] * scale), width);
    for (let x = first; x <= last; x++) busy[x] += row.busy[i] / (last - first + 1) + row.count[i];
  }
  return { busy, top: Math.max(1, ...busy) };
}
