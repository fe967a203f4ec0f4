// The packets of one connection of a capture: an end on either side, an arrow a packet.
import { draw, make, qpn, setText } from "./format.js";

const ROW = 32, LEFT = 130, RIGHT = 880, WIDTH = 1320, HEAD = 56;

function nameOf({ address, qpn: number }) {
  return number ? `${address}, QP ${qpn(number)}` : address;
}

function arrow(packet, i) {
  const y = HEAD + i * ROW;
  const [from, to] = packet.to_right ? [LEFT, RIGHT] : [RIGHT, LEFT];
  const tip = packet.to_right ? -8 : 8;
  const words = packet.text.replace(/ qpn 0x[0-9a-f]+/, "");  // The heads have it.
  return draw("g", { class: packet.remark ? "packet remarked" : "packet" },
    draw("path", { d: `M${from} ${y}L${to} ${y + 10}` +
                      `m${tip} ${-5}L${to} ${y + 10}l${tip} ${4}` }),
    draw("text", { x: LEFT - 12, y: y + 9, class: "time" }, packet.seconds.toFixed(6)),
    draw("text", { x: (LEFT + RIGHT) / 2, y: y - 3, class: "words" }, words),
    draw("text", { x: RIGHT + 12, y: y + 9, class: "remark" }, packet.remark),
    draw("title", {}, packet.remark ? `${packet.text}: ${packet.remark}` : packet.text));
}

function picture({ left, right, packets }) {
  const height = HEAD + packets.length * ROW + 12;
  const post = (x) => draw("line", { class: "post", x1: x, x2: x, y1: HEAD - 14, y2: height });
  return draw("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "ladder", role: "img",
                       "aria-label": `packets of ${nameOf(left)} and ${nameOf(right)}` },
    post(LEFT), post(RIGHT), draw("text", { x: LEFT, y: 20, class: "end" }, nameOf(left)),
    draw("text", { x: RIGHT, y: 20, class: "end" }, nameOf(right)), ...packets.map(arrow));
}

// Shows one of the ladders; which one, a list says.
export class Ladders {
  constructor({ ladders, more, cut }) {
    this.ladders = ladders;
    const left = [cut, more ? `${more} more connections, which have fewer packets` : ""]
      .filter(Boolean).join("; ");
    this.left = make("p", { class: "quiet left-out" },
      left ? `${left}; feroce trace has them all` : "");
    this.list = make("select", { "aria-label": "Connection" }, ...ladders.map((ladder, i) =>
      make("option", { value: i }, `${nameOf(ladder.left)} and ${nameOf(ladder.right)}: ` +
        `${ladder.packets.length + ladder.more} packets`)));
    this.place = make("div");
    this.more = make("p", { class: "quiet" });
    this.element = make("div", { class: "capture" }, this.list, this.left, this.place,
      this.more);
    this.list.addEventListener("change", () => this.draw());
    if (ladders.length) this.draw();
  }

  draw() {
    const ladder = this.ladders[this.list.value || 0];
    this.place.replaceChildren(picture(ladder));
    setText(this.more, ladder.more ? `${ladder.more} more packets; feroce trace has them all` : "");
  }

  show() {
    return this.ladders.length;
  }
}
