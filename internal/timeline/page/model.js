// SPDX-License-Identifier: Apache-2.0
// model: the timeline as rows of bars, each row from left to right without overlap.

const data = JSON.parse(document.getElementById("data").textContent);
const start = BigInt(data.start), wall = BigInt(data.wall);

// One row is one depth of one track.
class Row {
  constructor(n) {
    this.from = new Float64Array(n);
    this.to = new Float64Array(n);
    this.busy = new Float64Array(n);
    this.count = new Float64Array(n);
    this.name = new Int32Array(n);
    this.category = new Int16Array(n);
    this.detail = new Int32Array(n);
    this.length = n;
  }

  // The first bar that ends after t.
  after(t) {
    let low = 0, high = this.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (this.to[mid] > t) high = mid; else low = mid + 1;
    }
    return low;
  }
}

function rowsOf(bars) {
  const sizes = [];
  for (let i = 0; i < bars.length; i += 8) sizes[bars[i]] = (sizes[bars[i]] || 0) + 1;
  const rows = Array.from({ length: sizes.length }, (_, depth) => new Row(sizes[depth] || 0));
  const filled = new Int32Array(rows.length);
  let at = 0;
  for (let i = 0; i < bars.length; i += 8) {
    const row = rows[bars[i]], n = filled[bars[i]]++;
    at += bars[i + 1];
    row.from[n] = at;
    row.to[n] = at + bars[i + 2];
    row.busy[n] = bars[i + 3];
    row.count[n] = bars[i + 4];
    row.name[n] = bars[i + 5];
    row.category[n] = bars[i + 6];
    row.detail[n] = bars[i + 7];
  }
  return rows;
}

const tracks = [];
const processes = data.processes.map(p => ({
  name: p.name,
  tracks: p.tracks.map(t => {
    const track = { name: t.name, rows: rowsOf(t.bars), y: 0 };
    tracks.push(track);
    return track;
  }),
  counters: p.counters.map(c => {
    const n = c.points.length / 2, at = new Float64Array(n), value = new Float64Array(n);
    let top = 0;
    for (let i = 0; i < n; i++) {
      at[i] = c.points[2 * i];
      value[i] = c.points[2 * i + 1];
      top = Math.max(top, value[i]);
    }
    return { name: c.name, at, value, top, bytes: !/\/s$/.test(c.name), y: 0 };
  }),
}));

const arrows = [];
for (let i = 0; i < data.arrows.length; i += 4) {
  arrows.push({ from: data.arrows[i], at: data.arrows[i + 1], to: data.arrows[i + 2], until: data.arrows[i + 3] });
}

const sums = [];
for (let i = 0; i < data.sums.length; i += 5) {
  const [category, name, count, total, longest] = data.sums.slice(i, i + 5);
  sums.push({ category, name: data.texts[name], count, total, longest });
}

// A duration with three digits.
function duration(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (Math.abs(ns) >= size) return `${digits(ns / size)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

function digits(n) {
  const a = Math.abs(n);
  return n.toFixed(a >= 100 ? 0 : a >= 10 ? 1 : 2);
}

function amount(c, value) {
  if (!c.bytes) {
    for (const [unit, size] of [["GB/s", 1], ["MB/s", 1e-3]]) if (value >= size) return `${digits(value / size)} ${unit}`;
    return value ? `${digits(value * 1e6)} kB/s` : "0";
  }
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (value >= size) return `${digits(value / size)} ${unit}`;
  }
  return `${value} B`;
}

const grouped = n => n.toLocaleString("en").replaceAll(",", "\u202f");

function wallTime(ns) {
  const all = start + wall + BigInt(Math.round(ns)), ms = all / 1000000n;
  return new Date(Number(ms)).toISOString().replace("T", " ").replace("Z", "") + String(all % 1000000n).padStart(6, "0") + " UTC";
}
