// graph: draws one tree on the canvas. One rectangle per visible frame; what is
// narrower than a pixel is merged with its neighbours, so the cost depends on
// the screen and not on the profile.

const rowHeight = 20, gap = 1;
const canvas = document.getElementById("graph");
const pen = canvas.getContext("2d");

// Hue, saturation and lightness per kind; blue and orange also differ for
// people who see few colours. Lightness varies a little by file.
const paints = {
  light: [[352, 62, 80], [210, 78, 77], [34, 88, 74], [250, 8, 84], [284, 52, 81], [162, 34, 76]],
  dark: [[352, 40, 42], [212, 52, 42], [30, 60, 38], [250, 6, 36], [284, 34, 42], [162, 30, 34]],
};

function paint(f) {
  const theme = dark.matches ? "dark" : "light";
  if (f.theme !== theme) {
    let hash = 7;
    for (const c of f.file || f.name) hash = (hash * 31 + c.codePointAt(0)) >>> 0;
    const [h, s, l] = paints[theme][f.kind];
    const shift = f.kind === TRAMPOLINE || f.kind === PROCESS ? 0 : (hash % 9) - 4;
    f.paint = `hsl(${h + shift} ${s}% ${l + shift}%)`;
    f.theme = theme;
  }
  return f.paint;
}

// Red grew, blue shrank; the stronger, the larger the part that changed.
function paintChange(now, before) {
  const part = (now - before) / Math.max(now, before, 1);
  const strength = Math.abs(part) ** 0.6;
  const hue = part > 0 ? 2 : 214;
  if (dark.matches) return `hsl(${hue} ${Math.round(8 + 52 * strength)}% ${Math.round(30 + 12 * strength)}%)`;
  return `hsl(${hue} ${Math.round(10 + 72 * strength)}% ${Math.round(90 - 20 * strength)}%)`;
}

const graph = {
  tree: null, values: null, zoom: 0, hover: -1, cursor: -1, match: null, comparing: false,
  rects: [],   // per depth: {n, x, w} from left to right; n is -1 where `count` frames were merged
  sorted: new Map(),

  show(tree, values, comparing) {
    this.sorted = new Map();
    Object.assign(this, { tree, values, comparing, hover: -1 });
  },

  // Widest first: what holds most is where one looks first. Sorted on demand.
  kids(n) {
    let list = this.sorted.get(n);
    if (!list) {
      const { tree, values: { weight } } = this;
      list = tree.list.slice(tree.first[n], tree.first[n + 1]).filter(c => weight[c] > 0).sort((a, b) => weight[b] - weight[a] || a - b);
      this.sorted.set(n, list);
    }
    return list;
  },

  path(n) {
    const path = [];
    for (; n >= 0; n = this.tree.parent[n]) path.unshift(n);
    return path;
  },

  layout(width) {
    const { weight } = this.values;
    const rects = this.rects = [];
    const put = (depth, r) => (rects[depth] ||= []).push(r);
    const above = this.path(this.zoom);
    above.forEach((n, depth) => put(depth, { n, x: 0, w: width }));
    const scale = width / weight[this.zoom];
    const todo = [[this.zoom, 0, above.length]];
    while (todo.length) {
      const [n, left, depth] = todo.pop();
      let x = left, rest = 0, count = 0;
      for (const c of this.kids(n)) {
        const w = weight[c] * scale;
        if (w < 1) { rest += w; count++; continue; }
        put(depth, { n: c, x, w });
        todo.push([c, x, depth + 1]);
        x += w;
      }
      if (rest >= 0.5) put(depth, { n: -1, x, w: rest, count });
    }
    for (const row of rects) row.sort((a, b) => a.x - b.x);
  },

  draw() {
    const width = canvas.clientWidth, ratio = devicePixelRatio || 1;
    if (!this.tree || !width || !this.values.weight[0]) return;
    this.layout(width);
    const height = this.rects.length * rowHeight;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.textBaseline = "middle";
    const look = getComputedStyle(document.body);
    const colour = name => look.getPropertyValue(name).trim();
    const ink = dark.matches ? "#eef0f4" : "#16181b", soft = dark.matches ? "rgb(238 240 244 / .62)" : "rgb(22 24 27 / .58)";
    const merged = colour("--line"), mark = colour("--mark"), accent = colour("--accent");
    const regular = `12px ${look.fontFamily}`, small = `11px ${look.fontFamily}`;
    const zoomDepth = this.path(this.zoom).length - 1;

    this.rects.forEach((row, depth) => {
      const y = depth * rowHeight, h = rowHeight - gap;
      for (const { n, x, w, count } of row) {
        const inner = Math.max(w - gap, 0.6);
        if (n < 0) {
          pen.fillStyle = merged;
          pen.fillRect(x, y, inner, h);
          if (w < 60) continue;
          pen.font = small;
          pen.fillStyle = soft;
          pen.fillText(fit(`${exact(count)} frames too narrow to draw`, inner - 10, pen), x + 5, y + h / 2 + 0.5);
          continue;
        }
        const f = n ? frames[this.tree.frame[n]] : null;
        const dim = (this.match && !(f && this.match(f))) || depth < zoomDepth;
        pen.globalAlpha = dim ? 0.35 : 1;
        pen.fillStyle = this.comparing ? paintChange(this.values.total[n], this.values.before[n])
          : f ? paint(f) : merged;
        pen.fillRect(x, y, inner, h);
        if (this.match && f && this.match(f)) { pen.fillStyle = mark; pen.fillRect(x, y + h - 2, inner, 2); }
        if (w > 28) {
          pen.globalAlpha = dim ? 0.6 : 1;
          pen.font = regular;
          pen.fillStyle = ink;
          const room = inner - 10, text = fit(f ? shortName(f) : "all", room, pen);
          pen.fillText(text, x + 5, y + h / 2 + 0.5);
          const used = pen.measureText(text).width;
          if (f && room - used > 40 && where(f)) {
            pen.font = small;
            pen.fillStyle = soft;
            pen.fillText(fit(where(f), room - used - 8, pen), x + 5 + used + 8, y + h / 2 + 0.5);
          }
        }
        pen.globalAlpha = 1;
        if (n === this.hover || (n === this.cursor && document.activeElement === canvas)) {
          pen.strokeStyle = n === this.cursor && n !== this.hover ? accent : ink;
          pen.lineWidth = 1.5;
          pen.strokeRect(x + 0.75, y + 0.75, Math.max(inner - 1.5, 0.5), h - 1.5);
        }
      }
    });
  },

  // The node under a point of the canvas, or -1.
  at(x, y) {
    const row = this.rects[Math.floor(y / rowHeight)] || [];
    let low = 0, high = row.length - 1;
    while (low <= high) {
      const mid = (low + high) >> 1, r = row[mid];
      if (x < r.x) high = mid - 1;
      else if (x >= r.x + r.w) low = mid + 1;
      else return r.n;
    }
    return -1;
  },
};
