// Rates of the last two minutes: of all programs, of one device, or of one process.
import { draw, make, setText, speed } from "./format.js";

const SPAN = 120;  // Seconds.
const WIDTH = 600, HEIGHT = 120, TOP = 8, FOOT = 18;

const PLOTS = [
  { title: "Data", unit: "B/s", series: [
    ["sent", "sent_bytes_per_second", "a"], ["received", "received_bytes_per_second", "b"]] },
  { title: "Packets", unit: "/s", series: [
    ["sent", "sent_packets_per_second", "a"],
    ["received", "received_packets_per_second", "b"]] },
  { title: "Trouble", unit: "/s", series: [
    ["sent again", "resent_packets_per_second", "c"],
    ["dropped", "dropped_packets_per_second", "d"]] },
];
const KEYS = PLOTS.flatMap((plot) => plot.series.map((series) => series[1]));

// What was seen, by scope: "all", "device NAME" or "pid NUMBER".
export class History {
  constructor() {
    this.scopes = new Map();
  }

  add(time, state) {
    const seen = new Map([["all", state.devices]]);
    for (const device of state.devices) seen.set(`device ${device.ifname}`, [device]);
    for (const process of state.processes) seen.set(`pid ${process.pid}`, [process]);
    for (const name of this.scopes.keys()) if (!seen.has(name)) this.scopes.delete(name);
    for (const [name, rows] of seen) {
      const points = this.scopes.get(name) ?? [];
      const point = { time };
      for (const key of KEYS) {
        const known = rows.filter((row) => row[key] !== null);
        point[key] = known.length ? known.reduce((sum, row) => sum + row[key], 0) : null;
      }
      points.push(point);
      while (points[0].time < time - SPAN * 1000 - 5000) points.shift();
      this.scopes.set(name, points);
    }
  }

  of(scope) {
    return this.scopes.get(scope) ?? [];
  }
}

// 1, 2 or 5 times a power of ten.
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value);
}

class Plot {
  constructor({ title, unit, series }) {
    this.unit = unit;
    this.series = series.map(([name, key, letter]) => ({
      key, value: make("dd", {}, "–"), letter, name,
      fill: draw("path", { class: `fill ${letter}` }),
      stroke: draw("path", { class: `stroke ${letter}` }),
    }));
    this.top = draw("text", { x: 0, y: TOP + 11 });
    this.middle = draw("text", { x: 0, y: (TOP + HEIGHT - FOOT) / 2 + 11 });
    this.cursor = draw("line", { class: "cursor", y1: TOP, y2: HEIGHT - FOOT, visibility: "hidden" });
    const lines = [TOP, (TOP + HEIGHT - FOOT) / 2, HEIGHT - FOOT].map((y) =>
      draw("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
    this.picture = draw("svg", { role: "img", "aria-label": `${title} of the last two minutes` },
      ...lines, ...this.series.flatMap((s) => [s.fill, s.stroke]), this.top, this.middle,
      draw("text", { x: 0, y: HEIGHT - 4 }, "2 min ago"), this.cursor);
    this.end = draw("text", { y: HEIGHT - 4, "text-anchor": "end" }, "now");
    this.picture.append(this.end);
    this.element = make("div", { class: "plot" }, make("h3", {}, title),
      make("dl", { class: "now" }, ...this.series.map((s) =>
        make("div", {}, make("dt", { class: s.letter }, s.name), s.value))), this.picture);
    this.pointed = null;  // Where the pointer is, in pixels.
    this.picture.addEventListener("pointermove", (event) => {
      this.pointed = event.offsetX;
      this.show(this.points, this.now);
    });
    this.picture.addEventListener("pointerleave", () => {
      this.pointed = null;
      this.show(this.points, this.now);
    });
  }

  show(points = [], now = 0) {
    this.points = points;
    this.now = now;
    const width = this.picture.clientWidth || WIDTH;
    this.picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.picture.querySelectorAll(".grid").forEach((line) => line.setAttribute("x2", width));
    this.end.setAttribute("x", width);
    const largest = Math.max(0, ...points.flatMap((p) => this.series.map((s) => p[s.key] ?? 0)));
    const most = ceiling(largest);
    const x = (time) => width * (1 - (now - time) / (SPAN * 1000));
    const y = (value) => HEIGHT - FOOT - (HEIGHT - FOOT - TOP) * (value / most);
    setText(this.top, speed(most, this.unit).replace(".0", ""));
    setText(this.middle, speed(most / 2, this.unit).replace(".0", ""));
    for (const { key, fill, stroke } of this.series) {
      const known = points.filter((p) => p[key] !== null && x(p.time) >= 0);
      const line = known.map((p, i) =>
        `${i ? "L" : "M"}${x(p.time).toFixed(1)} ${y(p[key]).toFixed(1)}`).join("");
      stroke.setAttribute("d", line);
      const foot = HEIGHT - FOOT;
      fill.setAttribute("d", known.length < 2 ? "" :
        `${line}L${x(known.at(-1).time).toFixed(1)} ${foot}L${x(known[0].time).toFixed(1)} ${foot}Z`);
    }
    this.tell(points, x);
  }

  // The newest values, or those below the pointer.
  tell(points, x) {
    let at = points.at(-1);
    if (this.pointed !== null && points.length) {
      const distance = (p) => Math.abs(x(p.time) - this.pointed);
      at = points.reduce((best, p) => (distance(p) < distance(best) ? p : best));
      this.cursor.setAttribute("x1", x(at.time));
      this.cursor.setAttribute("x2", x(at.time));
    }
    this.cursor.setAttribute("visibility", this.pointed === null || !at ? "hidden" : "visible");
    const ago = at && this.pointed !== null ? Math.round((this.now - at.time) / 1000) : 0;
    setText(this.end, ago > 0 ? `${ago} s ago` : "now");
    for (const { key, value } of this.series) setText(value, speed(at?.[key], this.unit));
  }
}

export class Plots {
  constructor(parent) {
    this.plots = PLOTS.map((plot) => new Plot(plot));
    parent.append(...this.plots.map((plot) => plot.element));
  }

  show(points, now) {
    for (const plot of this.plots) plot.show(points, now);
  }
}
