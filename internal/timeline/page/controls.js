// controls: input of the user. The visible part of the run is in the address's
// fragment, so that a link shows the same; everything from the data is set as text.

let due = 0;
function redraw() {
  if (!due) due = requestAnimationFrame(() => { due = 0; draw(); });
}

function look_at(from, to) {
  const least = 100, length = Math.max(data.length, 1), margin = length * 0.02;
  let span = Math.min(Math.max(to - from, least), length + 2 * margin);
  const middle = (from + to) / 2;
  from = Math.max(middle - span / 2, -margin);
  if (from + span > length + margin) from = length + margin - span;
  shown.from = from;
  shown.to = from + span;
  $("range").textContent = `${duration(Math.max(shown.from, 0))} – ${duration(Math.min(shown.to, length))}, ${duration(span)}`;
  clearTimeout(look_at.timer);
  look_at.timer = setTimeout(writeFragment, 200);
  redraw();
}

function writeFragment() {
  const at = new URLSearchParams();
  if (shown.to - shown.from < data.length) { at.set("from", Math.round(shown.from)); at.set("to", Math.round(shown.to)); }
  if ($("search").value) at.set("q", $("search").value);
  const fragment = at.toString();
  if (fragment !== location.hash.slice(1)) history.replaceState(null, "", fragment ? "#" + fragment : location.pathname + location.search);
}

function readFragment() {
  const at = new URLSearchParams(location.hash.slice(1));
  $("search").value = at.get("q") || "";
  search();
  const from = parseFloat(at.get("from")), to = parseFloat(at.get("to"));
  if (to > from) look_at(from, to);
  else whole();
}

const whole = () => look_at(-data.length * 0.01, data.length * 1.01);
function zoom(factor, at = (shown.from + shown.to) / 2) {
  look_at(at - (at - shown.from) * factor, at + (shown.to - at) * factor);
}
const move = part => look_at(shown.from + part * (shown.to - shown.from), shown.to + part * (shown.to - shown.from));

function search() {
  const text = $("search").value;
  shown.match = null;
  $("matched").textContent = "";
  $("search").classList.remove("literal");
  if (text) {
    let pattern;
    try { pattern = new RegExp(text, "i"); } catch {
      $("search").classList.add("literal");
      pattern = { test: s => s.includes(text) };
    }
    const hit = data.texts.map(t => pattern.test(t));
    shown.match = (row, i) => hit[row.name[i]] || hit[row.detail[i]];
    let count = 0, busy = 0;
    for (const s of sums) if (pattern.test(s.name)) { count += s.count; busy += s.total; }
    $("matched").textContent = `${grouped(count)} · ${duration(busy)}`;
  }
  redraw();
}

// The element under a point of the canvas.
function under(x, y) {
  if (x < gutter()) return null;
  const t = toTime(x), slack = (shown.to - shown.from) / canvas.clientWidth * 1.5;
  for (const p of processes) {
    for (const c of p.counters) if (y >= c.y && y < c.y + counterHeight) return { counter: c, t };
    for (const track of p.tracks) {
      const depth = Math.floor((y - track.y) / barHeight);
      if (y < track.y || depth >= track.rows.length) continue;
      const row = track.rows[depth], i = row.after(t - slack);
      if (i < row.length && row.from[i] <= t + slack && !shown.off.has(row.category[i])) return { row, i, track };
      return null;
    }
  }
  return null;
}

function describe(to, u) {
  to.textContent = "";
  if (!u) return;
  if (u.counter) {
    const c = u.counter;
    let value = 0;
    for (let i = 0; i < c.at.length && c.at[i] <= u.t; i++) value = c.value[i];
    to.append(make("b", "", c.name), `  ${amount(c, value)}\n`, make("span", "soft", `at ${duration(u.t)}`));
    return;
  }
  const { row, i } = u, detail = data.texts[row.detail[i]];
  to.append(make("b", "", data.texts[row.name[i]]), `  ${duration(row.to[i] - row.from[i])}\n`);
  if (row.count[i] > 1) to.append(`${grouped(row.count[i])} drawn as one, ${duration(row.busy[i])} together\n`);
  if (detail) to.append(detail + "\n");
  to.append(make("span", "soft", `at ${duration(row.from[i])} · ${wallTime(row.from[i])}`));
}

let drag = null;
canvas.addEventListener("pointerdown", e => {
  drag = { x: e.offsetX, from: shown.from, to: shown.to, moved: false };
  canvas.setPointerCapture(e.pointerId);
});
canvas.addEventListener("pointermove", e => {
  if (drag) {
    const by = (drag.x - e.offsetX) / (canvas.clientWidth - gutter()) * (drag.to - drag.from);
    if (Math.abs(drag.x - e.offsetX) > 3) drag.moved = true;
    if (drag.moved) { canvas.classList.add("moving"); look_at(drag.from + by, drag.to + by); }
    return;
  }
  const u = under(e.offsetX, e.offsetY), tip = $("tip");
  shown.hover = u && u.row ? u : null;
  canvas.classList.toggle("over", Boolean(u && u.row));
  tip.hidden = !u;
  if (u) {
    describe(tip, u);
    tip.style.left = `${Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${e.clientY + 18 + tip.offsetHeight > innerHeight ? e.clientY - tip.offsetHeight - 8 : e.clientY + 18}px`;
  }
  redraw();
});
canvas.addEventListener("pointerup", e => {
  canvas.classList.remove("moving");
  if (drag && !drag.moved) {
    const u = under(e.offsetX, e.offsetY);
    shown.chosen = u && u.row ? u : null;
    describe($("details"), shown.chosen);
    redraw();
  }
  drag = null;
});
canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; shown.hover = null; redraw(); });
canvas.addEventListener("dblclick", e => {
  const u = under(e.offsetX, e.offsetY);
  if (u && u.row) {
    const length = u.row.to[u.i] - u.row.from[u.i];
    look_at(u.row.from[u.i] - length * 0.1, u.row.to[u.i] + length * 0.1);
  }
});
for (const on of [canvas, axis]) {
  on.addEventListener("wheel", e => {
    if (on === canvas && !e.ctrlKey && !e.metaKey && !e.shiftKey && Math.abs(e.deltaX) < Math.abs(e.deltaY)) return; // the page scrolls
    e.preventDefault();
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) move((e.deltaX || e.deltaY) / 800);
    else zoom(Math.exp(e.deltaY / 300), toTime(e.offsetX));
  }, { passive: false });
}

// A part of the run: dragged over the axis or the overview.
function select(on, timeOf) {
  let from = null;
  on.addEventListener("pointerdown", e => { from = timeOf(e.offsetX); on.setPointerCapture(e.pointerId); });
  on.addEventListener("pointerup", e => {
    const to = timeOf(e.offsetX);
    if (from !== null && Math.abs(to - from) > (shown.to - shown.from) / 500) look_at(Math.min(from, to), Math.max(from, to));
    else if (on === overview) look_at(to - (shown.to - shown.from) / 2, to + (shown.to - shown.from) / 2);
    from = null;
  });
}
select(axis, toTime);
select(overview, x => x / overview.clientWidth * data.length);

const keys = {
  w: () => zoom(0.7), s: () => zoom(1.4), a: () => move(-0.2), d: () => move(0.2),
  ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "+": () => zoom(0.7), "-": () => zoom(1.4), 0: whole,
  f: () => { const c = shown.chosen; if (c) look_at(c.row.from[c.i], c.row.to[c.i]); },
};
addEventListener("keydown", e => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target === $("search")) return;
  if (e.key === "/") { e.preventDefault(); $("search").focus(); return; }
  const act = keys[e.key];
  if (act) { e.preventDefault(); act(); }
});
$("whole").addEventListener("click", whole);
$("closer").addEventListener("click", () => zoom(0.6));
$("farther").addEventListener("click", () => zoom(1.6));
$("arrows").addEventListener("change", e => { shown.arrows = e.target.checked; redraw(); });
$("search").addEventListener("input", () => { search(); writeFragment(); });
$("search").addEventListener("keydown", e => { if (e.key === "Escape") { e.target.value = ""; search(); writeFragment(); e.target.blur(); } });

const words = {
  python: "Python function", launch: "kernel launch", kernel: "kernel on the GPU", copy: "copy", memset: "memset", wait: "wait", load: "module load",
  span: "library call", nccl: "NCCL", cpu: "on CPU", "off-cpu": "off CPU", syscall: "system call", call: "other call",
};
function legend() {
  $("legend").textContent = "";
  data.categories.forEach((word, n) => {
    const e = make("span", shown.off.has(n) ? "off" : "", words[word] || word);
    const [h, s, l] = (paints[word] || paints.call)[dark.matches ? 1 : 0];
    e.style.setProperty("--swatch", `hsl(${h} ${s}% ${l}%)`);
    e.addEventListener("click", () => { if (!shown.off.delete(n)) shown.off.add(n); legend(); redraw(); });
    $("legend").append(e);
  });
}

function table() {
  const head = make("tr"), rows = $("table").tBodies[0];
  for (const text of ["Name", "Count", "Total", "Mean", "Longest"]) head.append(make("th", "", text));
  $("table").tHead.append(head);
  const longest = sums.length ? sums[0].total : 1;
  for (const s of sums.slice(0, 100)) {
    const row = make("tr"), first = make("td"), dot = make("i", "dot"), total = make("td"), bar = make("span", "bar"), fill = make("i");
    const [h, sat, l] = (paints[data.categories[s.category]] || paints.call)[dark.matches ? 1 : 0];
    dot.style.background = `hsl(${h} ${sat}% ${l}%)`;
    first.append(dot, s.name, make("span", "file", words[data.categories[s.category]] || data.categories[s.category]));
    first.title = s.name;
    fill.style.width = `${100 * s.total / longest}%`;
    bar.append(fill);
    total.append(bar, make("span", "number", duration(s.total)));
    row.append(first, make("td", "", grouped(s.count)), total, make("td", "", duration(s.total / s.count)), make("td", "", duration(s.longest)));
    row.addEventListener("click", () => {
      $("search").value = "^" + s.name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&") + "$";
      search();
      writeFragment();
    });
    rows.append(row);
  }
}

function subtitle() {
  const parts = [`${wallTime(0).slice(0, 19)} UTC`, `${grouped(data.slices)} slices`];
  if (data.short) parts.push(`${grouped(data.short)} too short to be drawn: see the table`);
  if (data.left) parts.push(`${grouped(data.left)} on tracks beyond those shown`);
  if (data.bare) parts.push(`${grouped(data.bare)} without details, of which there are too many`);
  const lost = Object.entries(data.lost).map(([reason, n]) => `${grouped(n)} ${reason}`);
  if (lost.length) parts.push("lost: " + lost.join(", "));
  $("subtitle").textContent = parts.join(" · ");
  document.querySelector("#sum strong").textContent = duration(data.length);
  document.querySelector("#sum span").textContent = `${processes.length} ${processes.length === 1 ? "process" : "processes"}`;
}

subtitle();
legend();
table();
$("empty").hidden = tracks.length > 0;
if (tracks.length) {
  readFragment();
  addEventListener("hashchange", readFragment);
  new ResizeObserver(redraw).observe(canvas);
  dark.addEventListener("change", () => { legend(); redraw(); });
}
