// SPDX-License-Identifier: Apache-2.0
// model: the profile as arrays, and the trees that the graph draws of it.

const data = JSON.parse(document.getElementById("data").textContent);

// Kinds of frame, in the order of stack.Kind; PROCESS is ours, for grouping.
const UNKNOWN = 0, PYTHON = 1, NATIVE = 2, TRAMPOLINE = 3, KERNEL = 4, PROCESS = 5;
const kindNames = ["no code", "Python", "native", "interpreter trampoline", "GPU kernel", "process"];

const types = [
  { name: "inuse_space", label: "In use" },
  { name: "inuse_objects", label: "Objects" },
  { name: "peak_space", label: "At the peak" },
  { name: "alloc_space", label: "Allocated" },
  { name: "alloc_objects", label: "Allocations" },
  { name: "tensor_inuse_space", label: "Tensors in use" },
  { name: "tensor_inuse_objects", label: "Tensors" },
  { name: "tensor_alloc_space", label: "Tensors allocated" },
  { name: "tensor_alloc_objects", label: "Tensor allocations" },
  { name: "tensor_peak_space", label: "Tensors at the peak" },
  { name: "tensor_rounding_space", label: "Rounding" },
  { name: "tensor_fragmented_space", label: "Fragmentation" },
  { name: "cpu", label: "CPU time" },
  { name: "wall", label: "Time" },
  { name: "samples", label: "Samples" },
  { name: "launches", label: "Launches" },
  { name: "wait", label: "Waits" },
  { name: "host_time", label: "Calls" },
  { name: "device", label: "GPU time" },
  { name: "kernels", label: "Kernels" },
  { name: "copied", label: "Copied" },
].map(t => ({ ...t, column: data.types.indexOf(t.name), bytes: t.name.endsWith("space") || t.name === "copied", time: ["cpu", "wall", "wait", "host_time", "device"].includes(t.name) }))
  .filter(t => t.column >= 0);
const isTime = types.some(t => t.time);

const frameCount = data.frames.length / 4;
const frames = Array.from({ length: frameCount }, (_, i) => ({
  kind: data.frames[4 * i],
  name: data.strings[data.frames[4 * i + 1]],
  file: data.strings[data.frames[4 * i + 2]],
  line: data.frames[4 * i + 3],
}));
for (const name of data.processes) frames.push({ kind: PROCESS, name, file: "", line: 0 });

const stride = 2 + data.types.length;
const snapshots = data.profiles.map(p => ({
  time: p.time ? new Date(p.time) : null,
  count: p.rows.length / stride,
  leaf: i => p.rows[i * stride],
  process: i => p.rows[i * stride + 1],
  value: (i, type) => p.rows[i * stride + 2 + type.column],
}));

// The tree as it came: root first.
const stacks = (() => {
  const n = data.nodes.length / 2 + 1;
  const parent = new Int32Array(n), frame = new Int32Array(n);
  parent[0] = frame[0] = -1;
  for (let i = 1; i < n; i++) {
    parent[i] = i - data.nodes[2 * i - 2];
    frame[i] = data.nodes[2 * i - 1];
  }
  return { parent, frame };
})();

// Base name, or the import path below site-packages: what tells files apart.
function shortFile(file) {
  const site = /\/(?:site|dist)-packages\/(.+\.py)$/.exec(file) || /\/lib\/python3\.[^/]+\/(.+\.py)$/.exec(file);
  return site ? site[1] : file.slice(file.lastIndexOf("/") + 1);
}

function where(f, full) {
  const file = full ? f.file : shortFile(f.file);
  return f.line ? (file || "line ") + (file ? ":" : "") + f.line : file;
}

// A C++ signature without its parameters; the tooltip has all of it.
function shortName(f) {
  if (f.short === undefined) {
    const end = f.kind === NATIVE || f.kind === KERNEL ? f.name.indexOf("(", 1) : -1;
    f.short = end > 0 && !f.name.startsWith("(anonymous") ? f.name.slice(0, end) : f.name;
  }
  return f.short;
}

// A tree has parents before children, and knows for each snapshot at which
// node each row ends.
const trees = new Map();
function tree(inverted, grouped) {
  const key = `${inverted} ${grouped}`;
  if (!trees.has(key)) trees.set(key, children(inverted || grouped ? regroup(inverted, grouped) : {
    ...stacks, ends: snapshots.map(s => Int32Array.from({ length: s.count }, (_, i) => s.leaf(i))),
  }));
  return trees.get(key);
}

function regroup(inverted, grouped) {
  const parent = [-1], frame = [-1], byKey = new Map();
  const child = (at, f) => {
    const key = at * frames.length + f;
    let n = byKey.get(key);
    if (n === undefined) {
      n = parent.length;
      byKey.set(key, n);
      parent.push(at);
      frame.push(f);
    }
    return n;
  };
  const ends = snapshots.map(s => {
    const end = new Int32Array(s.count), path = [];
    for (let i = 0; i < s.count; i++) {
      path.length = 0;
      for (let n = s.leaf(i); n > 0; n = stacks.parent[n]) path.push(stacks.frame[n]);
      if (!inverted) path.reverse();
      let at = grouped ? child(0, frameCount + s.process(i)) : 0;
      for (const f of path) at = child(at, f);
      end[i] = at;
    }
    return end;
  });
  return { parent: Int32Array.from(parent), frame: Int32Array.from(frame), ends };
}

// Adds the children of node n as list[first[n]] … list[first[n + 1] - 1].
function children(t) {
  const n = t.parent.length, first = new Int32Array(n + 1), list = new Int32Array(n - 1);
  for (let i = 1; i < n; i++) first[t.parent[i] + 1]++;
  for (let i = 0; i < n; i++) first[i + 1] += first[i];
  const next = first.slice();
  for (let i = 1; i < n; i++) list[next[t.parent[i]]++] = i;
  return { ...t, first, list };
}

// Values of one type: self and total now and before, and the weight that
// decides the width: the larger of now and before when comparing, so that what
// is gone is still seen.
function measure(t, type, comparing) {
  const n = t.parent.length;
  const add = up => { for (let i = n - 1; i > 0; i--) up[t.parent[i]] += up[i]; return up; };
  const selves = snapshots.map((s, k) => {
    const self = new Float64Array(n);
    for (let i = 0; i < s.count; i++) self[t.ends[k][i]] += s.value(i, type);
    return self;
  });
  const self = selves[0], total = add(self.slice());
  if (!comparing) return { self, total, weight: total };
  const selfBefore = selves[1], before = add(selfBefore.slice());
  return { self, total, selfBefore, before, weight: add(self.map((v, i) => Math.max(v, selfBefore[i]))) };
}

// What each line holds: a row counts at its innermost Python frame, because
// that line can be changed; total counts it at every frame once.
function lines(type) {
  const made = new Map();
  const line = f => {
    if (!made.has(f)) made.set(f, { frame: f, held: [0, 0], total: [0, 0] });
    return made.get(f);
  };
  const stamp = new Int32Array(frameCount).fill(-1);
  let row = 0;
  snapshots.forEach((s, k) => {
    for (let i = 0; i < s.count; i++, row++) {
      const value = s.value(i, type);
      let holder = -1;
      for (let n = s.leaf(i); n > 0; n = stacks.parent[n]) {
        const f = stacks.frame[n];
        if (holder < 0 && frames[f].kind === PYTHON) holder = f;
        if (stamp[f] === row) continue;
        stamp[f] = row;
        line(f).total[k] += value;
      }
      if (holder < 0) holder = stacks.frame[s.leaf(i)];
      if (holder >= 0) line(holder).held[k] += value;
    }
  });
  return [...made.values()];
}

function formatBytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let u = 0, v = n;
  while (Math.abs(v) >= 1024 && u < units.length - 1) { v /= 1024; u++; }
  return `${u ? v.toFixed(Math.abs(v) < 10 ? 2 : 1) : v} ${units[u]}`;
}
function formatTime(ns) {
  const a = Math.abs(ns);
  return a >= 1e9 ? `${(ns / 1e9).toFixed(2)} s` : a >= 1e6 ? `${(ns / 1e6).toFixed(a < 1e7 ? 1 : 0)} ms` : `${(ns / 1e3).toFixed(0)} µs`;
}
const exact = n => n.toLocaleString("en-US");
const format = (n, type) => type.bytes ? formatBytes(n) : type.time ? formatTime(n) : exact(n);
const signed = (n, type) => (n > 0 ? "+" : n < 0 ? "−" : "±") + format(Math.abs(n), type);
const percent = (n, of) => of ? `${n < 0 ? "−" : ""}${(100 * Math.abs(n) / of).toFixed(Math.abs(n) < of / 100 ? 2 : 1)} %` : "";
