// Who talks to whom. Connected processes stand together: around the one with most connections, or in
// a circle. A node stays where it is while the same processes are connected.
import { count, draw, duration, make, speed } from "./format.js";

const NODE = { width: 132, height: 42 };
const WIDTH = 640, LOOP = 16;

// The nodes that are connected with each other, largest group first.
function groups(nodes, edges) {
  const leader = new Map(nodes.map((node) => [node.id, node.id]));
  const find = (id) => {
    while (leader.get(id) !== id) id = leader.get(id);
    return id;
  };
  for (const edge of edges) leader.set(find(edge.from), find(edge.to));
  const found = new Map();
  for (const node of nodes) {
    const group = found.get(find(node.id)) ?? [];
    group.push(node);
    found.set(find(node.id), group);
  }
  return [...found.values()].sort((a, b) => b.length - a.length);
}

function degrees(edges) {
  const out = new Map();
  for (const { from, to } of edges)
    if (from !== to)
      for (const id of [from, to]) out.set(id, (out.get(id) ?? 0) + 1);
  return out;
}

// Places within a box, whose size depends on the number of nodes.
function placeGroup(group, degree) {
  const sorted = [...group].sort((a, b) =>
    (degree.get(b.id) ?? 0) - (degree.get(a.id) ?? 0) || a.id.localeCompare(b.id));
  if (sorted.length === 1)
    return { width: NODE.width + 40, height: NODE.height + 34, at: [[sorted[0], 0, 0]] };
  if (sorted.length === 2)
    return { width: 2 * NODE.width + 190, height: NODE.height + 34,
             at: [[sorted[0], -NODE.width / 2 - 75, 0], [sorted[1], NODE.width / 2 + 75, 0]] };
  const star = (degree.get(sorted[0].id) ?? 0) >= sorted.length - 1 &&
    (degree.get(sorted[1].id) ?? 0) < sorted.length - 1;
  const around = star ? sorted.slice(1) : sorted;
  const radius = Math.max(star ? 120 : 95, around.length * 26);
  const wide = 1.55;
  const at = around.map((node, i) => {
    const angle = 2 * Math.PI * i / around.length - Math.PI / 2;
    return [node, wide * radius * Math.cos(angle), radius * Math.sin(angle)];
  });
  if (star) at.push([sorted[0], 0, 0]);
  return { width: 2 * wide * radius + NODE.width + 24, height: 2 * radius + NODE.height + 30, at };
}

// Boxes in rows, like words of a text.
function place(nodes, edges) {
  const degree = degrees(edges);
  const boxes = groups(nodes, edges).map((group) => placeGroup(group, degree));
  const width = Math.max(WIDTH, ...boxes.map((box) => box.width));
  const rows = [];
  for (const box of boxes) {
    const row = rows.at(-1);
    if (row && row.width + box.width <= width) {
      row.boxes.push(box);
      row.width += box.width;
      row.height = Math.max(row.height, box.height);
    } else {
      rows.push({ boxes: [box], width: box.width, height: box.height });
    }
  }
  const places = new Map();
  let top = 0;
  for (const row of rows) {
    let left = (width - row.width) / 2;
    for (const box of row.boxes) {
      for (const [node, x, y] of box.at)
        places.set(node.id, { x: left + box.width / 2 + x, y: top + row.height / 2 + y });
      left += box.width;
    }
    top += row.height;
  }
  // Room above for the line of a process that talks to itself.
  return { width, height: top + LOOP, top: -LOOP, places };
}

function shorten(text, most) {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}

// From border to border, so that no line is hidden below a node.
function clip(from, to) {
  const dx = to.x - from.x, dy = to.y - from.y;
  const by = Math.min(1, (NODE.width / 2 + 4) / Math.abs(dx || 1e-9),
    (NODE.height / 2 + 4) / Math.abs(dy || 1e-9));
  return { x: from.x + dx * by, y: from.y + dy * by };
}

function lineOf(edge, places) {
  const a = places.get(edge.from), b = places.get(edge.to);
  if (edge.from === edge.to) {
    const x = a.x + NODE.width / 2 - 22, y = a.y - NODE.height / 2;
    return { d: `M${x - 16} ${y}C${x - 16} ${y - 28} ${x + 20} ${y - 28} ${x + 16} ${y}`,
             x: x + 2, y: y - 24, self: true };
  }
  const from = clip(a, b), to = clip(b, a);
  return { d: `M${from.x} ${from.y}L${to.x} ${to.y}`, x: (from.x + to.x) / 2,
           y: (from.y + to.y) / 2 };
}

function describe(edge) {
  const many = edge.queue_pairs > 1 ? `${edge.queue_pairs} connections` : "1 connection";
  const failed = edge.failed ? `, ${edge.failed} failed` : "";
  return `${many} by ${edge.by}${failed}; packets there ${speed(edge.there)}, back ` +
    `${speed(edge.back)}; round trip ${duration(edge.rtt_ns)}`;
}

export class Graph {
  constructor(parent, more, choose) {
    this.parent = parent;
    this.more = more;
    this.choose = choose;
    this.shape = null;
  }

  show({ nodes, edges, nodes_more, edges_more }, chosen) {
    const shape = JSON.stringify([nodes.map((n) => n.id), edges.map((e) => [e.from, e.to])]);
    if (shape !== this.shape) this.build(nodes, edges);
    this.shape = shape;
    for (const node of nodes) this.update(node, chosen);
    // Many labels would hide each other: then only pointing at a line tells.
    const degree = degrees(edges);
    for (const edge of edges)
      this.updateEdge(edge, Math.min(degree.get(edge.from) ?? 0, degree.get(edge.to) ?? 0) < 3);
    this.more.textContent = nodes_more || edges_more ?
      `and ${nodes_more} more processes, ${edges_more} more connections` : "";
  }

  build(nodes, edges) {
    const focused = document.activeElement?.dataset?.node;
    this.nodes = new Map();
    this.edges = new Map();
    if (!nodes.length) {
      this.parent.replaceChildren(make("p", { class: "empty" }, "No program uses Feroce now. Try ",
        make("code", {}, "feroce run -- ib_write_bw -d feroce_lo")));
      return;
    }
    const { width, height, top, places } = place(nodes, edges);
    const picture = draw("svg", { viewBox: `0 ${top} ${width} ${height}`, role: "group",
                                  "aria-label": "processes and their connections" });
    for (const edge of edges) picture.append(this.makeEdge(edge, lineOf(edge, places)));
    for (const node of nodes) picture.append(this.makeNode(node, places.get(node.id)));
    this.parent.replaceChildren(picture);
    if (focused) this.nodes.get(focused)?.focus();
  }

  makeEdge(edge, line) {
    const label = draw("text", { x: line.x, y: line.y - (line.self ? 0 : 7) });
    const below = draw("text", { x: line.x, y: line.y + 16 });
    const group = draw("g", { class: "edge" }, draw("path", { d: line.d }), label,
      line.self ? null : below, draw("title"));
    this.edges.set(`${edge.from}\n${edge.to}`, { group, label, below });
    return group;
  }

  updateEdge(edge, isRoomy) {
    const { group, label, below } = this.edges.get(`${edge.from}\n${edge.to}`);
    const rate = (edge.there ?? 0) + (edge.back ?? 0);
    group.classList.toggle("failed", edge.failed > 0);
    group.classList.toggle("idle", rate === 0);
    group.querySelector("path").setAttribute("stroke-width",
      (1.4 + Math.log10(1 + rate) * 0.6).toFixed(1));
    label.textContent = edge.failed ? "failed" : rate && isRoomy ? `${count(rate)} packets/s` : "";
    below.textContent = edge.rtt_ns && rate && isRoomy ? duration(edge.rtt_ns) : "";
    group.querySelector("title").textContent = describe(edge);
  }

  makeNode(node, { x, y }) {
    const isProcess = node.pid !== undefined;
    const group = draw("g", {
      class: isProcess ? "node" : "node address", transform: `translate(${x} ${y})`,
      "data-node": node.id, tabindex: isProcess ? 0 : null, role: isProcess ? "button" : null,
    },
    draw("rect", { x: -NODE.width / 2, y: -NODE.height / 2, width: NODE.width,
                   height: NODE.height, rx: 9 }),
    draw("text", { y: -2 }, shorten(isProcess ? node.comm : node.address, 17)),
    draw("text", { y: 14, class: "under" }), draw("title"));
    if (isProcess) {
      group.addEventListener("click", () => this.choose(node.id));
      group.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        this.choose(node.id);
      });
    }
    this.nodes.set(node.id, group);
    return group;
  }

  update(node, chosen) {
    const group = this.nodes.get(node.id);
    const isProcess = node.pid !== undefined;
    group.classList.toggle("failed", node.errors > 0);
    group.classList.toggle("silent", node.answers === false);
    group.classList.toggle("chosen", chosen === node.id);
    if (isProcess) group.setAttribute("aria-pressed", chosen === node.id);
    const failures = node.errors ? `, ${node.errors} failed` : "";
    group.querySelector(".under").textContent =
      isProcess ? `${node.pid} · ${node.queue_pairs} QP${failures}` : "not of this user";
    group.querySelector("title").textContent = isProcess ?
      `${node.comm}, pid ${node.pid}, on ${node.ifname || "no device"}` : node.address;
  }
}
