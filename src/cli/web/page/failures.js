// What failed and why: the sentence of one end, and below it what the other end knows.
import { arrange, make, qpn, setText } from "./format.js";

function chain(failure) {
  const links = failure.because.map((cause) =>
    make("li", {}, make("span", { class: "quiet" }, "because "),
      make("span", { class: "who" }, cause.who), ": ", cause.reason));
  if (!links.length && failure.ask)
    links.push(make("li", {}, "the other end may know more: ",
      make("code", {}, failure.ask.command), ` on the machine of ${failure.ask.address}`));
  return links.length ? make("ul", { class: "chain" }, ...links) : null;
}

function card(failure) {
  return make("li", { class: failure.alive ? "failure" : "failure ended" },
    make("span", { class: "tag mono" }, failure.lqpn ? `QP ${qpn(failure.lqpn)}` : failure.kind),
    make("div", { class: "who" }, failure.who), make("div", {}, failure.reason), chain(failure));
}

export class Failures {
  constructor(list, count) {
    this.list = list;
    this.count = count;
    this.cards = new Map();
  }

  // How many more there are is told of all, and of each process that they concern.
  show({ failures, failures_more: moreOfAll, failures_more_of: moreOf }, scope) {
    const more = scope.startsWith("pid ") ? moreOf[scope.slice(4)] ?? 0 : moreOfAll;
    const concerns = (f) => !scope.startsWith("pid ") || scope === `pid ${f.pid}` ||
      f.because.some((cause) => scope === `pid ${cause.pid}`);
    const shown = failures.filter(concerns);
    const cards = new Map();
    for (const failure of shown) {
      const key = JSON.stringify(failure);
      cards.set(key, this.cards.get(key) ?? card(failure));
    }
    this.cards = cards;
    arrange(this.list, cards.size ? [...cards.values()] :
      [this.nothing ??= make("li", { class: "empty" }, "No work request has failed.")]);
    const all = shown.length + more;
    setText(this.count, all ? `${all}` + (more ? `, of which ${shown.length} are shown` : "") : "");
  }
}
