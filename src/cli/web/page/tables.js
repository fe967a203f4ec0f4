// The tables. Rows are known by a key and updated in place, so that a row that has the focus keeps it.
import { amount, arrange, count, duration, make, qpn, setText, speed } from "./format.js";

const text = (title, of, extra = {}) => ({ title, of, show: (v) => v ?? "", ...extra });
const number = (title, of, show = count) => ({ title, of, show, isNumber: true });
const rate = (title, key, unit = "/s") => number(title, (r) => r[key], (v) => speed(v, unit));
const error = text("Last error", (r) => r.last_error, { isWide: true });

function causes(resent) {
  return Object.entries(resent ?? {}).filter(([, n]) => n > 0)
    .map(([cause, n]) => `${cause} ${count(n)}`).join(", ");
}

const processColumns = [
  number("Pid", (r) => r.pid, String), text("Command", (r) => r.comm),
  text("Device", (r) => r.ifname), number("Queue pairs", (r) => r.queue_pairs),
  rate("Sent", "sent_bytes_per_second", "B/s"), rate("Received", "received_bytes_per_second", "B/s"),
  rate("Sent again", "resent_packets_per_second"), text("for", (r) => causes(r.resent_packets)),
  number("Round trip", (r) => r.rtt_ns, duration),
  number("Outstanding", (r) => r.sends_outstanding), number("Errors", (r) => r.errors), error,
];

const qpColumns = [
  text("QPN", (r) => qpn(r.lqpn), { isMono: true }), number("Pid", (r) => r.pid, String),
  text("Command", (r) => r.comm), text("Type", (r) => r.type),
  text("State", (r) => r.state, { mark: (v) => ({ RTS: "good", ERR: "bad" })[v] }),
  text("Peer", (r) => r["dst-addr"]), text("Its QPN", (r) => qpn(r.rqpn), { isMono: true }),
  text("By", (r) => r.by), rate("Sent", "sent_packets_per_second"),
  rate("Received", "received_packets_per_second"), rate("Posted", "posts_per_second"),
  number("Outstanding", (r) => r.sends_outstanding),
  number("In flight", (r) => r.in_flight_bytes, (v) => amount(v, "B")),
  number("Window", (r) => r.window_bytes, (v) => amount(v, "B")),
  number("Round trip", (r) => r.rtt_ns, duration), error,
];

const deviceColumns = [
  text("Device", (r) => r.ifname),
  text("State", (r) => r.state, { mark: (v) => (v === "ACTIVE" ? "good" : "bad") }),
  number("Processes", (r) => r.processes), number("Queue pairs", (r) => r.queue_pairs),
  rate("Sent", "sent_bytes_per_second", "B/s"), rate("Received", "received_bytes_per_second", "B/s"),
  rate("Packets sent", "sent_packets_per_second"),
  rate("received", "received_packets_per_second"), rate("sent again", "resent_packets_per_second"),
  rate("dropped", "dropped_packets_per_second"), number("Errors", (r) => r.errors),
];

const diskColumns = [
  text("Disk", (r) => r.disk), number("Pid", (r) => r.pid, String),
  number("Size", (r) => r.size, (v) => amount(v, "B")), rate("Reads", "reads_per_second"),
  rate("Writes", "writes_per_second"), rate("Read", "read_bytes_per_second", "B/s"),
  rate("Written", "written_bytes_per_second", "B/s"), text("Writer", (r) => r.writer),
  text("From", (r) => r.addresses),
];

class Table {
  constructor(columns, keyOf, scopeOf, sortBy) {
    Object.assign(this, { columns, keyOf, scopeOf, sortBy, isDescending: true });
    this.rows = new Map();
    this.body = make("tbody");
    this.heads = columns.map((column, i) => {
      const button = make("button", { type: "button" }, column.title);
      button.addEventListener("click", () => this.sort(i));
      return make("th", { scope: "col", class: column.isNumber ? "number" : null }, button);
    });
    this.element = make("table", {}, make("thead", {}, make("tr", {}, ...this.heads)), this.body);
  }

  sort(column) {
    this.isDescending = this.sortBy === column ? !this.isDescending :
      Boolean(this.columns[column].isNumber);
    this.sortBy = column;
    this.show(...this.shown);
  }

  compare(a, b) {
    const of = this.columns[this.sortBy].of;
    const left = of(a) ?? -1, right = of(b) ?? -1;
    const order = typeof left === "string" ? left.localeCompare(right) : left - right;
    return (this.isDescending ? -order : order) ||
      this.keyOf(a).localeCompare(this.keyOf(b), undefined, { numeric: true });
  }

  show(records, matches, chosen, choose) {
    this.shown = [records, matches, chosen, choose];
    this.heads.forEach((head, i) => {
      if (i !== this.sortBy) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", this.isDescending ? "descending" : "ascending");
    });
    const rows = new Map();
    for (const record of [...records].sort((a, b) => this.compare(a, b))) {
      const shown = this.columns.map((column) => column.show(column.of(record)));
      if (!matches(shown.join(" "))) continue;
      const key = this.keyOf(record);
      const row = this.rows.get(key) ?? this.makeRow(record, choose);
      this.fill(row, record, shown, chosen);
      rows.set(key, row);
    }
    this.rows = rows;
    arrange(this.body, [...rows.values()]);
    return rows.size;
  }

  makeRow(record, choose) {
    const cells = this.columns.map((column) => make("td", { class: [
      column.isNumber && "number", column.isMono && "mono", column.isWide && "wide",
    ].filter(Boolean).join(" ") || null }));
    const scope = this.scopeOf?.(record);
    const row = make("tr", { tabindex: scope ? 0 : null }, ...cells);
    if (scope) {
      row.addEventListener("click", () => choose(scope));
      row.addEventListener("keydown", (event) => {
        if (event.key === "Enter") choose(scope);
        if (event.key === "ArrowDown") row.nextElementSibling?.focus();
        if (event.key === "ArrowUp") row.previousElementSibling?.focus();
        if (event.key.startsWith("Arrow")) event.preventDefault();
      });
    }
    return row;
  }

  fill(row, record, shown, chosen) {
    shown.forEach((value, i) => {
      const cell = row.children[i], mark = this.columns[i].mark?.(value);
      setText(cell, value);
      if (this.columns[i].isWide) cell.title = value;  // It may be cut off.
      cell.classList.toggle("good", mark === "good");
      cell.classList.toggle("bad", mark === "bad");
    });
    const scope = this.scopeOf?.(record);
    row.setAttribute("aria-selected", Boolean(scope) && scope === chosen);
  }
}

// Sessions are no rows: each has its paths below it.
class Sessions {
  constructor() {
    this.element = make("div");
  }

  show(records, matches) {
    const shown = records.filter((record) => matches(JSON.stringify(record)));
    this.element.replaceChildren(...shown.map((record) => this.session(record)));
    return shown.length;
  }

  session(record) {
    const fact = (name, value) => make("span", {}, make("span", { class: "quiet" }, `${name} `),
      value);
    return make("div", { class: "session" },
      make("div", { class: "facts" }, make("strong", {}, record.session),
        make("span", { class: "quiet" }, `${record.comm} (pid ${record.pid})`),
        fact("policy", record.policy ?? ""), fact("requests", speed(record.requests_per_second)),
        fact("read", amount(record.read_bytes_per_second, "B/s")),
        fact("written", amount(record.written_bytes_per_second, "B/s")),
        fact("p50", duration(record.latency_p50_ns)), fact("p99", duration(record.latency_p99_ns)),
        fact("failed", String(record.failed ?? 0))),
      make("div", { class: "paths" }, ...(record.paths ?? []).map(path)));
  }
}

function path(record) {
  const isUp = record.state === "connected";
  return make("div", { class: isUp ? "path" : "path down" },
    make("span", {}, make("span", { class: "quiet" }, `path ${record.path} `),
      `${record.source || "any"} → ${record.destination}`),
    make("strong", { class: isUp ? "good" : "bad" }, record.state),
    make("span", { class: "quiet" }, `heartbeat ${duration(record.heartbeat_ns)}, ` +
      `${count(record.inflight)} in flight, ${record.connects} connects, ` +
      `${record.failovers} failovers`),
    !isUp && record.last_error ? make("span", { class: "error" }, record.last_error) : null);
}

const VIEWS = [
  { name: "processes", title: "Processes",
    table: () => new Table(processColumns, (r) => `${r.pid}`, (r) => `pid ${r.pid}`, 4) },
  { name: "qps", title: "Queue pairs", ofPid: true,
    table: () => new Table(qpColumns, (r) => `${r.pid} ${r.lqpn}`, null, 8) },
  { name: "sessions", title: "Sessions", ofPid: true, table: () => new Sessions() },
  { name: "disks", title: "Disks", ofPid: true,
    table: () => new Table(diskColumns, (r) => `${r.pid} ${r.disk}`, null, 0) },
  { name: "devices", title: "Devices",
    table: () => new Table(deviceColumns, (r) => r.ifname, (r) => `device ${r.ifname}`, 0) },
];

const NOTHING = {
  processes: "No program uses Feroce now.", qps: "No program has a queue pair.",
  sessions: "No program has a session.", disks: "No disk is served.", devices: "No device.",
  packets: "The capture has no RoCEv2 packet.",
};

export class Tables {
  constructor({ tabs, panel, more, filter }, choose) {
    Object.assign(this, { tabs, panel, more, filter, choose, state: null, chosen: "all" });
    this.views = VIEWS.map((view) => ({ ...view, table: view.table() }));
    this.views.forEach((view, i) => this.addTab(view, i));
    this.wanted = location.hash.slice(1);
    filter.addEventListener("input", () => this.refresh());
    this.nothing = make("p", { class: "empty" });
    this.open(location.hash.slice(1));
  }

  step(event, i) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const next = this.views[(i + by + this.views.length) % this.views.length];
    this.open(next.name);
    next.tab.focus();
  }

  // A capture was given: it has a tab of its own.
  addCapture(table) {
    const i = this.views.length;
    this.views.push({ name: "packets", title: "Packets", table });
    this.addTab(this.views[i], i);
    if (this.wanted === "packets") this.open("packets");
  }

  addTab(view, i) {
    view.count = make("span", { class: "count" });
    view.tab = make("button", { type: "button", role: "tab", id: `tab-${view.name}`,
                                "aria-controls": "table", title: `${i + 1}` },
      view.title, view.count);
    view.tab.addEventListener("click", () => this.open(view.name));
    view.tab.addEventListener("keydown", (event) => this.step(event, i));
    this.tabs.append(view.tab);
  }

  openNumber(i) {
    if (this.views[i]) this.open(this.views[i].name);
  }

  open(name) {
    this.view = this.views.find((view) => view.name === name) ?? this.views[0];
    for (const view of this.views) {
      view.tab.setAttribute("aria-selected", view === this.view);
      view.tab.tabIndex = view === this.view ? 0 : -1;
    }
    this.panel.setAttribute("aria-labelledby", this.view.tab.id);
    if (location.hash.slice(1) !== this.view.name) history.replaceState(null, "", `#${this.view.name}`);
    this.refresh();
  }

  show(state, chosen) {
    this.state = state;
    this.chosen = chosen;
    this.refresh();
  }

  refresh() {
    if (!this.state) return;
    for (const view of this.views)
      setText(view.count, String(view.name === "qps" ? this.state.qps_all :
        view.table.ladders?.length ?? this.state[view.name].length));
    const { name, ofPid, table } = this.view;
    const words = this.filter.value.toLowerCase();
    const pid = ofPid && this.chosen.startsWith("pid ") ? Number(this.chosen.slice(4)) : null;
    const records = (this.state[name] ?? []).filter((r) => pid === null || r.pid === pid);
    const shown = table.show(records, (row) => row.toLowerCase().includes(words), this.chosen,
      this.choose);
    setText(this.nothing, words ? "No row has this in it." : NOTHING[name]);
    arrange(this.panel, [shown ? table.element : this.nothing]);
    setText(this.more, name === "qps" && this.state.qps_more ?
      `${this.state.qps_more} more queue pairs, which are less busy; feroce top -j has them all` : "");
  }
}
