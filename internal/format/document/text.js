// text: what the scripts of all pages need.

const $ = id => document.getElementById(id);
const make = (tag, className, text) => {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
};
const dark = matchMedia("(prefers-color-scheme: dark)");

// As much of a text as there is room for, in the font of the pen.
function fit(text, room, pen) {
  if (room < 8) return "";
  const max = Math.ceil(room / 3.2); // no letter is narrower on average
  if (text.length <= max && pen.measureText(text).width <= room) return text;
  let low = 0, high = Math.min(text.length, max);
  while (low < high) {
    const mid = (low + high + 1) >> 1;
    if (pen.measureText(text.slice(0, mid) + "…").width <= room) low = mid;
    else high = mid - 1;
  }
  return low > 1 ? text.slice(0, low) + "…" : "";
}
