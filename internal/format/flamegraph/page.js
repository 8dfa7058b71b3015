// page: what the reader does. The state is in the address's fragment, so that a
// link shows the same view; everything from the profile is set as text.

const canCompare = snapshots.length > 1;
// In use; where nothing is, because the processes have ended, what was; where the pool of PyTorch is from before, its tensors.
const hasValue = t => snapshots.some(s => { for (let i = 0; i < s.count; i++) if (s.value(i, t)) return true; return false; });
const firstType = types.find(hasValue) || types[0];

const state = { type: firstType, inverted: false, grouped: false, comparing: canCompare, query: "", order: "" };

// Fragment: type, view, group, compare, q, zoom (frames from the root).
function readFragment() {
  const at = new URLSearchParams(location.hash.slice(1));
  state.type = types.find(t => t.name === at.get("type")) || firstType;
  state.inverted = at.get("view") === "inverted";
  state.grouped = at.get("group") === "process";
  state.comparing = canCompare && at.get("compare") !== "no";
  state.query = at.get("q") || "";
  rebuild();
  let n = 0;
  for (const f of (at.get("zoom") || "").split(".").filter(Boolean)) {
    const next = graph.kids(n).find(c => graph.tree.frame[c] === Number(f));
    if (next === undefined) break;
    n = next;
  }
  graph.zoom = graph.cursor = n;
  refresh();
}

function writeFragment() {
  const at = new URLSearchParams();
  if (state.type !== firstType) at.set("type", state.type.name);
  if (state.inverted) at.set("view", "inverted");
  if (state.grouped) at.set("group", "process");
  if (canCompare && !state.comparing) at.set("compare", "no");
  if (state.query) at.set("q", state.query);
  if (graph.zoom > 0) at.set("zoom", graph.path(graph.zoom).slice(1).map(n => graph.tree.frame[n]).join("."));
  const fragment = at.toString();
  if (fragment !== location.hash.slice(1)) history.replaceState(null, "", fragment ? "#" + fragment : location.pathname + location.search);
}

// A new tree or new values; the zoom is kept where its path still exists.
function rebuild() {
  const kept = graph.tree ? graph.path(graph.zoom).slice(1).map(n => graph.tree.frame[n]) : [];
  const t = tree(state.inverted, state.grouped);
  graph.show(t, measure(t, state.type, state.comparing), state.comparing);
  let n = 0;
  for (const f of kept) {
    const next = graph.kids(n).find(c => t.frame[c] === f);
    if (next === undefined) break;
    n = next;
  }
  graph.zoom = graph.cursor = n;
}

function refresh() {
  writeFragment();
  search();
  for (const b of $("types").children) b.setAttribute("aria-checked", b.dataset.value === state.type.name);
  for (const b of $("views").children) b.setAttribute("aria-checked", (b.dataset.value === "inverted") === state.inverted);
  for (const group of [$("types"), $("views")]) for (const b of group.children) b.tabIndex = b.getAttribute("aria-checked") === "true" ? 0 : -1;
  $("group").firstElementChild.checked = state.grouped;
  $("compare").firstElementChild.checked = state.comparing;
  if ($("search").value !== state.query) $("search").value = state.query;
  const { total, before, weight } = graph.values;
  $("sum").firstElementChild.textContent = format(total[0], state.type);
  $("sum").lastElementChild.textContent = (state.comparing ? `${signed(total[0] - before[0], state.type)} since ` + clock(snapshots[1].time) : "")
    || { inuse_space: "in use", peak_space: "in use when most was", inuse_objects: "allocations in use", alloc_space: "allocated", alloc_objects: "allocations", tensor_inuse_space: "in use by PyTorch’s tensors", tensor_inuse_objects: "tensors in use", tensor_alloc_space: "allocated for tensors", tensor_alloc_objects: "tensor allocations", tensor_peak_space: "in use by tensors when most was", tensor_rounding_space: "added to requests by rounding", tensor_fragmented_space: "unused in segments that tensors keep", cpu: "on the CPU", wall: "of all threads", samples: "samples", launches: "launches", wait: "waiting for the GPU", host_time: "in calls of the driver", device: "on the GPU", kernels: "kernels", copied: "copied" }[state.type.name];
  $("empty").hidden = weight[0] > 0;
  canvas.hidden = !(weight[0] > 0);
  crumbs();
  legend();
  table();
  graph.draw();
  describe(graph.cursor);
}

const clock = t => t ? t.toLocaleString("en-GB", { timeZone: "UTC", dateStyle: "medium", timeStyle: "medium" }) + " UTC" : "an unknown time";

function search() {
  const box = $("search");
  let pattern = null;
  box.classList.remove("literal");
  if (state.query) {
    try { pattern = new RegExp(state.query, "i"); } catch {
      pattern = new RegExp(state.query.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"), "i");
      box.classList.add("literal");
    }
  }
  const known = new Map();
  graph.match = pattern && (f => {
    let m = known.get(f);
    if (m === undefined) known.set(f, m = pattern.test(`${f.name} (${where(f, true)})`));
    return m;
  });
  $("matched").textContent = "";
  if (!pattern) return;
  // The topmost match on each path counts, with everything below it.
  const { tree: t, values: { total } } = graph, inside = new Uint8Array(t.parent.length);
  let sum = 0;
  for (let n = 1; n < inside.length; n++) {
    if (inside[t.parent[n]]) inside[n] = 1;
    else if (graph.match(frames[t.frame[n]])) { inside[n] = 1; sum += total[n]; }
  }
  $("matched").textContent = `${format(sum, state.type)} matched ${total[0] ? `(${percent(sum, total[0])})` : ""}`;
}

function crumbs() {
  const path = graph.path(graph.zoom);
  $("path").hidden = false;
  $("path").replaceChildren(...path.flatMap((n, i) => {
    const b = make("button", "", n ? shortName(frames[graph.tree.frame[n]]) : "all");
    b.addEventListener("click", () => zoom(n));
    return i ? [make("span", "", "›"), b] : [b];
  }));
}

function legend() {
  const swatch = (text, colour) => {
    const s = make("span", "", text);
    s.style.setProperty("--swatch", colour);
    return s;
  };
  if (state.comparing) {
    return $("legend").replaceChildren(swatch("grew", paintChange(9, 1)), swatch("unchanged", paintChange(1, 1)), swatch("shrank", paintChange(1, 9)),
      make("em", "", "Width: the larger of before and now."));
  }
  const kinds = new Set(frames.slice(0, frameCount).map(f => f.kind));
  if (state.grouped) kinds.add(PROCESS);
  const theme = dark.matches ? "dark" : "light";
  $("legend").replaceChildren(...[PYTHON, NATIVE, KERNEL, TRAMPOLINE, UNKNOWN, PROCESS].filter(k => kinds.has(k)).map(k => {
    const [h, s, l] = paints[theme][k];
    return swatch(kindNames[k], `hsl(${h} ${s}% ${l}%)`);
  }));
}

function table() {
  const { type, comparing } = state;
  const change = (l, of) => l[of][0] - l[of][1];
  const columns = comparing
    ? [["Line", null], ["Change", l => change(l, "held")], ["Before", l => l.held[1]], ["Now", l => l.held[0]], ["Change with callees", l => change(l, "total")]]
    : [["Line", null], ["By the line itself", l => l.held[0]], ["With callees", l => l.total[0]]];
  $("table-title").textContent = comparing ? "What grew and what shrank" : isTime ? (type.time ? "Where the time goes" : "What each line does") : type.name.startsWith("inuse") ? "What each line holds" : "What each line allocated";
  const by = (columns.find(c => c[0] === state.order) || columns[1])[1];
  const most = snapshots[0].count ? graph.values.total[0] : 0;
  const own = columns.indexOf(columns.find(c => c[1] === by)) < columns.length - 1;
  const list = lines(type).filter(l => comparing && columns.findIndex(c => c[1] === by) === 1 ? by(l) : own ? l.held[0] || l.held[1] : l.total[0] || l.total[1])
    .sort((a, b) => by(b) - by(a) || b.total[0] - a.total[0] || (a.frame - b.frame)).slice(0, 200);
  const head = make("tr");
  for (const [name, value] of columns) {
    const th = make("th", "", name);
    if (value) {
      th.tabIndex = 0;
      th.style.cursor = "pointer";
      th.ariaSort = value === by ? "descending" : "none";
      th.addEventListener("click", () => { state.order = name; table(); });
      th.addEventListener("keydown", e => { if (e.key === "Enter") { state.order = name; table(); } });
      if (value === by) th.append(" ↓");
    }
    head.append(th);
  }
  $("table").tHead.replaceChildren(head);
  $("table").tBodies[0].replaceChildren(...list.map(l => {
    const f = frames[l.frame], tr = make("tr"), name = make("td"), dot = make("span", "dot");
    dot.style.background = paint(f);
    name.append(dot, f.name, make("span", "file", where(f)));
    name.title = `${f.name} ${where(f, true)}`;
    tr.append(name);
    for (const [column, value] of columns.slice(1)) {
      const td = make("td"), v = value(l);
      if (column.startsWith("Change")) {
        td.textContent = v ? signed(v, type) : "0";
        td.className = v > 0 ? "grew" : v < 0 ? "shrank" : "";
      } else {
        if (!comparing) {
          const bar = make("span", "bar"), fill = make("i");
          fill.style.width = `${most ? Math.min(100, 100 * v / most) : 0}%`;
          bar.append(fill);
          td.append(bar);
        }
        td.append(make("span", "number", format(v, type)));
      }
      td.title = exact(v);
      tr.append(td);
    }
    tr.addEventListener("click", () => {
      state.query = "^" + f.name.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&") + " \\(";
      refresh();
    });
    return tr;
  }));
}

function zoom(n) {
  if (n < 0) return;
  graph.zoom = graph.cursor = n;
  hideTip();
  refresh();
}

// Rows of [what, human, exact, percent] for a node.
function numbers(n) {
  const { values: { self, total, selfBefore, before }, comparing } = graph, { type } = state;
  const row = (what, v, of) => [what, format(v, type), type.bytes ? exact(v) : "", of ? percent(v, of) : ""];
  if (comparing) {
    const delta = total[n] - before[n];
    return [row("now", total[n], total[0]), row("before", before[n], before[0]),
      ["change", signed(delta, type), type.bytes ? (delta > 0 ? "+" : delta < 0 ? "−" : "") + exact(Math.abs(delta)) : "", percent(delta, before[n])],
      ["self change", signed(self[n] - selfBefore[n], type), "", ""]];
  }
  const rows = [row("total", total[n], total[0])];
  if (!state.inverted) rows.push(row("self", self[n], total[0]));
  if (graph.zoom > 0 && n !== graph.zoom) rows.push(["of the view", "", "", percent(total[n], total[graph.zoom])]);
  return rows;
}

function describe(n) {
  if (n < 0 || !graph.values.weight[0]) { $("details").textContent = ""; return; }
  const f = n ? frames[graph.tree.frame[n]] : null;
  $("details").textContent = (f ? `${f.name}${where(f) ? ` (${where(f, true)})` : ""}, ${kindNames[f.kind]}` : "all")
    + ": " + numbers(n).filter(r => r[1]).map(r => `${r[0]} ${r[1]}${r[3] ? ` (${r[3]})` : ""}`).join(", ");
}

function showTip(n, x, y) {
  const f = n ? frames[graph.tree.frame[n]] : null, tip = $("tip"), list = make("dl");
  for (const [what, human, precise, part] of numbers(n)) list.append(make("dt", "", what), make("dd", "", human), make("dd", "", part), make("dd", "", precise));
  tip.replaceChildren(make("b", "", f ? f.name : "all"), make("div", "file", f ? [kindNames[f.kind], where(f, true)].filter(Boolean).join(" · ") : ""), list);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18}px`;
}
function hideTip() { $("tip").hidden = true; }

function choice(id, options, pick) {
  $(id).replaceChildren(...options.map(([value, label, title]) => {
    const b = make("button", "", label);
    b.type = "button";
    b.dataset.value = value;
    b.title = title || "";
    b.setAttribute("role", "radio");
    b.addEventListener("click", () => { pick(value); rebuild(); refresh(); });
    return b;
  }));
  $(id).addEventListener("keydown", e => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!step) return;
    e.preventDefault();
    const list = [...$(id).children], next = list[(list.indexOf(document.activeElement) + step + list.length) % list.length];
    next.click();
    next.focus();
  });
}

choice("types", types.map(t => [t.name, t.label]), name => { state.type = types.find(t => t.name === name); });
choice("views", isTime
  ? [["top", "Callers first", "From the program's start down to the running line"], ["inverted", "Callees first", "From the running line up to its callers"]]
  : [["top", "Callers first", "From the program's start down to the allocation"], ["inverted", "Allocation first", "From the allocation up to its callers"]],
  view => { state.inverted = view === "inverted"; });
$("group").addEventListener("change", e => { state.grouped = e.target.checked; rebuild(); refresh(); });
$("compare").hidden = !canCompare;
$("compare").addEventListener("change", e => { state.comparing = e.target.checked; rebuild(); refresh(); });
let typing = 0;
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => { state.query = $("search").value; writeFragment(); search(); graph.draw(); }, 80);
});

const point = e => { const box = canvas.getBoundingClientRect(); return graph.at(e.clientX - box.left, e.clientY - box.top); };
canvas.addEventListener("mousemove", e => {
  const n = point(e);
  if (n !== graph.hover) { graph.hover = n; canvas.style.cursor = n >= 0 ? "pointer" : "default"; graph.draw(); }
  if (n >= 0) showTip(n, e.clientX, e.clientY); else hideTip();
});
canvas.addEventListener("mouseleave", () => { graph.hover = -1; hideTip(); graph.draw(); });
canvas.addEventListener("click", e => zoom(point(e)));
canvas.addEventListener("focus", () => { graph.draw(); describe(graph.cursor); });
canvas.addEventListener("blur", () => graph.draw());
canvas.addEventListener("keydown", e => {
  const { tree: t, cursor: n } = graph, siblings = n > 0 ? graph.kids(t.parent[n]) : [0], i = siblings.indexOf(n);
  const to = { ArrowUp: n > 0 ? t.parent[n] : 0, ArrowDown: graph.kids(n)[0], ArrowLeft: siblings[i - 1], ArrowRight: siblings[i + 1] }[e.key];
  if (e.key === "Enter" || e.key === " ") zoom(n);
  else if (to !== undefined) { graph.cursor = to; graph.draw(); describe(to); }
  else if (!e.key.startsWith("Arrow")) return;
  e.preventDefault();
});
document.addEventListener("keydown", e => {
  if (e.key === "/" && document.activeElement !== $("search")) { e.preventDefault(); $("search").focus(); }
  if (e.key !== "Escape") return;
  if (document.activeElement === $("search") && state.query) { state.query = ""; refresh(); }
  else if (graph.zoom > 0) zoom(graph.tree.parent[graph.zoom]);
});
addEventListener("resize", () => graph.draw());
addEventListener("hashchange", readFragment);
dark.addEventListener("change", refresh);

const processes = data.processes.length === 1 ? data.processes[0] : `${data.processes.length} processes`;
$("subtitle").textContent = [snapshots[0].time ? clock(snapshots[0].time) : "", processes, `${exact(snapshots[0].count)} rows`].filter(Boolean).join(" · ");
readFragment();
