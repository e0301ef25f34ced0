// What the page of `trash-panda report --to html` draws, of the data that comes with it.
"use strict";
const run = JSON.parse(document.getElementById("run").textContent);
const KINDS = ["read", "decode", "copy", "expand", "compute"];
const byId = (id) => document.getElementById(id);

// Text, as the command line writes it.
const three = (x) => (x >= 100 ? Math.round(x) : Number(x.toPrecision(3))).toString();
function seconds(s) {
  if (s === 0) return "0";
  const sign = s < 0 ? "-" : "", t = Math.abs(s);
  if (t < 0.9995e-3) return `${sign}${three(t * 1e6)} µs`;
  if (t < 0.9995) return `${sign}${three(t * 1e3)} ms`;
  if (t < 119.5) return `${sign}${three(t)} s`;
  return `${sign}${Math.floor(Math.round(t) / 60)} min ${Math.round(t) % 60} s`;
}
function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; n >= 999.5 && at < units.length - 1; ++at) n /= 1000;
  return `${at === 0 ? n : three(n)} ${units[at]}`;
}
const percent = (part) => `${Math.round(100 * part)} %`;
const sum = (values) => values.reduce((a, b) => a + b, 0);
const stalled = (pass) => sum(Object.values(pass.stalls_s));
const longest = (times) =>
  Object.entries(times).reduce((a, b) => (b[1] > a[1] ? b : a), ["", 0])[0];

// Elements. Names of blocks are text wherever they go.
function element(tag, attributes = {}, text = null, inside = "http://www.w3.org/1999/xhtml") {
  const made = document.createElementNS(inside, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}
const shape = (tag, attributes, text = null) =>
  element(tag, attributes, text, "http://www.w3.org/2000/svg");
function picture(place, height, label) {
  const width = Math.max(place.clientWidth, 240);
  const svg = shape("svg", {viewBox: `0 0 ${width} ${height}`, height, role: "img",
                            "aria-label": label});
  place.replaceChildren(svg);
  return {svg, width};
}
function box(svg, x, y, width, height, color, hint, more = {}) {
  const rect = shape("rect", {x, y, width: Math.max(width, 0.75), height, fill: `var(--${color})`,
                              ...more});
  if (hint) rect.append(shape("title", {}, hint));
  svg.append(rect);
}
function legend(id, entries) {
  byId(id).replaceChildren(...entries.map(([color, text, isLine]) => {
    const entry = element("span");
    entry.append(element("i", {class: isLine ? "line" : "", style: isLine
      ? `border-color: var(--${color})` : `background: var(--${color})`}), text);
    return entry;
  }));
}
/// A round step of which a few make up `span`.
function step(span, count) {
  const rough = span / count, power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
}
function timeAxis(svg, from, to, x, top, bottom, count) {
  const each = step(to - from || 1, count);
  for (let at = 0; at <= to - from + each * 1e-6; at += each) {
    svg.append(shape("line", {x1: x(from + at), x2: x(from + at), y1: top, y2: bottom,
                              stroke: "var(--line)"}));
    const anchor = at === 0 ? "start" : x(from + at) > x(to) - 20 ? "end" : "middle";
    svg.append(shape("text", {x: x(from + at), y: bottom + 14, "text-anchor": anchor},
                     at === 0 ? "0" : seconds(at)));
  }
}

function showHead() {
  const parts = run.pack.split("/").filter((part) => part);
  byId("pack").textContent = parts.at(-1) || run.pack;
  document.title = `${parts.at(-1) || run.pack} - trash-panda run`;
  byId("about").textContent =
    [run.file, run.pack, run.io, run.device].filter((x) => x).join(" · ");
  const remarks = [];
  if (run.lost_record_count > 0) {
    remarks.push(`${run.lost_record_count} records are missing: the log could not be written as ` +
      "fast.");
  }
  if (run.passes.length < run.pass_count) {
    remarks.push(`Of ${run.pass_count} passes the first and the last ${run.passes.length - 1} ` +
      "are shown.");
  }
  byId("remark").hidden = remarks.length === 0;
  byId("remark").textContent = remarks.join(" ");
  const typical = run.typical, first = run.passes[0];
  const cause = longest(typical.stalls_s), stall = stalled(typical);
  const figures = [
    [seconds(typical.pass_s),
     run.pass_count > 1 ? `typical of ${run.pass_count} passes` : "the only pass"],
    run.plan ? [seconds(run.plan.pass_s), `predicted, bound by ${run.plan.limiting}`] : null,
    run.pass_count > 1 ? [seconds(first.end_s - first.begin_s), "first pass"] : null,
    [percent(typical.pass_s ? (typical.busy_s.compute || 0) / typical.pass_s : 0),
     "of a pass computing"],
    [seconds(stall), stall > 0 ? `stalled, mostly for its ${cause}` : "stalled"],
    [typical.pass_s ? `${bytes(typical.read_bytes / typical.pass_s)}/s` : "-",
     `read: ${bytes(typical.read_bytes)} a pass`],
  ];
  byId("figures").replaceChildren(...figures.filter((x) => x).map(([value, text]) => {
    const card = element("div");
    card.append(element("b", {}, value), element("span", {}, text));
    return card;
  }));
}

const PARTS = [["compute", "computing"], ["elsewhere", "elsewhere in the model"],
               ["stall", "stalled"]];
function showPasses() {
  const {svg, width} = picture(byId("passes"), 210, "Time of each pass, by what it went into");
  const left = 52, bottom = 186, top = 10;
  const plan = run.plan;
  const highest = Math.max(...run.passes.map((pass) => pass.end_s - pass.begin_s),
                           plan ? plan.pass_s : 0) || 1;
  const y = (s) => bottom - (bottom - top) * s / highest;
  const each = step(highest, 4);
  for (let at = 0; at <= highest; at += each) {
    svg.append(shape("line", {x1: left, x2: width, y1: y(at), y2: y(at), stroke: "var(--line)"}));
    svg.append(shape("text", {x: left - 6, y: y(at) + 4, "text-anchor": "end"}, seconds(at)));
  }
  const room = (width - left) / run.passes.length;
  const wide = Math.max(Math.min(room * 0.7, 48), 0.8);
  run.passes.forEach((pass, index) => {
    const x = left + room * (index + 0.5) - wide / 2;
    const parts = {compute: pass.busy_s.compute || 0, elsewhere: pass.elsewhere_s,
                   stall: stalled(pass)};
    const hint = `pass ${pass.pass}: ${seconds(pass.end_s - pass.begin_s)}\n` +
      PARTS.map(([part, text]) => `${text} ${seconds(parts[part])}`).join("\n") +
      (parts.stall > 0 ? `\nmostly for ${longest(pass.stalls_s)}` : "");
    let at = 0;
    for (const [part] of PARTS) {
      if (parts[part] > 0) {
        box(svg, x, y(at + parts[part]), wide, y(at) - y(at + parts[part]), part, hint);
        at += parts[part];
      }
    }
    const every = Math.ceil(run.passes.length / Math.max(1, Math.floor((width - left) / 36)));
    if (index % every === 0) {
      svg.append(shape("text", {x: x + wide / 2, y: bottom + 16, "text-anchor": "middle"},
                       pass.pass));
    }
  });
  const entries = PARTS.map(([part, text]) => [part, text]);
  if (plan) {
    const place = {x1: left, x2: width, y1: y(plan.pass_s), y2: y(plan.pass_s)};
    svg.append(shape("line", {...place, stroke: "var(--card)", "stroke-width": 5}));
    svg.append(shape("line", {...place, stroke: "var(--mark)", "stroke-width": 2,
                              "stroke-dasharray": "6 4"}));
    entries.push(["mark", `predicted: ${seconds(plan.pass_s)}`, true]);
  }
  legend("passes-legend", entries);
  byId("passes-about").textContent = "The first pass fills the RAM tier. Where leases overlap, " +
    "parts may add up to more than the pass.";
}

// The chosen pass: spans that touch it, those for other passes included.
const LANES = [["read", "disk"], ["decode", "decode"], ["copy", "copy"], ["expand", "expand"],
               ["compute", "compute"]];
function lane(svg, y, name, width) {
  svg.append(shape("text", {x: 0, y: y - 3, class: "name"}, name));
  svg.append(shape("rect", {x: 0, y, width, height: 16, fill: "none", stroke: "var(--line)"}));
}
// Of stalls, not those that would be a hair in the picture.
function measuredLanes(pass) {
  const inside = (span) => span.end > pass.begin_s && span.begin < pass.end_s;
  const lanes = LANES.map(([kind, name]) => ({name, kind, marks: run.spans
    .filter((span) => span.kind === kind && inside(span))
    .map((span) => ({...span, color: kind, hint:
      `${span.name}: ${kind} ${seconds(span.end - span.begin)}, ${bytes(span.bytes)}` +
      `\npass ${span.pass}, from ${seconds(span.begin - pass.begin_s)}`}))}));
  lanes.push({name: "stalls", kind: "stall", marks: run.stalls
    .filter((stall) => inside(stall) && stall.pass === pass.pass &&
      stall.end - stall.begin > (pass.end_s - pass.begin_s) / 2000)
    .map((stall) => ({...stall, color: "stall", text: stall.cause, hint:
      `stalled ${seconds(stall.end - stall.begin)} for ${stall.cause} of ${stall.name}`}))});
  return lanes.filter((each) => each.marks.length > 0 || each.kind === "stall");
}
function predictedLanes(pass) {
  if (!run.plan) return [];
  const marks = (key, color, what) => run.plan.blocks.filter((block) => block[key]).flatMap(
    (block) => [0, run.plan.pass_s].map((later) => ({
      begin: pass.begin_s + block[key][0] + later, end: pass.begin_s + block[key][1] + later,
      color, hint: `${block.name}: predicted ${what} ${seconds(block[key][1] - block[key][0])}`})));
  const lanes = [
    {name: "predicted disk", marks: marks("read_s", "read", "read")},
    {name: "predicted decode", marks: marks("decode_s", "decode", "decoding")},
    {name: "predicted copy", marks: marks("copy_s", "copy", "copy")},
    {name: "predicted compute", marks: marks("compute_s", "compute", "computation")},
    {name: "predicted stalls", marks: run.plan.blocks.filter((block) => block.stall_s > 0).map(
      (block) => ({begin: pass.begin_s + block.compute_s[0] - block.stall_s,
                   end: pass.begin_s + block.compute_s[0], color: "stall", text: block.stalled_by,
                   hint: `predicted stall ${seconds(block.stall_s)} for ${block.stalled_by}` +
                     ` of ${block.name}`}))},
  ];
  const end = pass.begin_s + run.plan.pass_s;
  for (const each of lanes) {
    each.marks = each.marks.filter((mark) => mark.end > pass.begin_s && mark.begin < end)
      .map((mark) => ({...mark, end: Math.min(mark.end, end)}));
  }
  return lanes.filter((each) => each.marks.length > 0);
}
function showLanes(pass) {
  const measured = measuredLanes(pass), predicted = predictedLanes(pass);
  const lanes = [...measured, ...predicted];
  const gap = predicted.length > 0 ? 12 : 0;
  const height = 36 * lanes.length + gap + 28;
  const {svg, width} = picture(byId("lanes"), height, `What was done when in pass ${pass.pass}`);
  const to = Math.max(pass.end_s, predicted.length > 0 ? pass.begin_s + run.plan.pass_s : 0);
  const x = (s) => 1 + (width - 2) * (s - pass.begin_s) / (to - pass.begin_s || 1);
  timeAxis(svg, pass.begin_s, to, x, 0, height - 20, Math.max(3, Math.floor(width / 110)));
  lanes.forEach((each, index) => {
    const y = 18 + 36 * index + (index >= measured.length ? gap : 0);
    lane(svg, y, each.name, width);
    for (const mark of each.marks) {
      const begin = Math.max(x(mark.begin), 1), end = Math.min(x(mark.end), width - 1);
      box(svg, begin, y + 1, end - begin, 14, mark.color, mark.hint,
          end - begin > 3 ? {stroke: "var(--card)", "stroke-width": 0.75} : {});
      if (mark.text && end - begin > 8 * mark.text.length + 6) {
        svg.append(shape("text", {x: (begin + end) / 2, y: y + 12, "text-anchor": "middle",
                                  style: "fill: var(--card); pointer-events: none"}, mark.text));
      }
    }
  });
  const kinds = new Set(lanes.flatMap((each) => each.marks.map((mark) => mark.color)));
  const names = {read: "read from disk", decode: "decoded", copy: "copied to the GPU",
                 expand: "expanded", compute: "computed with", stall: "stalled"};
  legend("lanes-legend", Object.entries(names).filter(([kind]) => kinds.has(kind)));
}

// Residency: from the read's begin, or for the RAM tier from its end, until it is given up.
function showPlaces(pass) {
  const count = Math.max(run.blocks.length, 1);
  const row = Math.max(2, Math.min(14, Math.floor(420 / count)));
  const top = 4, height = top + row * count + 24;
  const {svg, width} = picture(byId("places"), height,
                               `Which blocks were in memory during pass ${pass.pass}`);
  const left = row >= 11 ? Math.min(150, width / 4) : 0;
  const duration_s = pass.end_s - pass.begin_s || 1;
  const x = (s) => left + (width - left - 1) * (s - pass.begin_s) / duration_s;
  timeAxis(svg, pass.begin_s, pass.end_s, x, 0, height - 20,
           Math.max(3, Math.floor((width - left) / 110)));
  const show = (index, begin, end, color, hint, opacity) => {
    const from = Math.max(begin, pass.begin_s), to = Math.min(end, pass.end_s);
    if (to > from) {
      box(svg, x(from), top + row * index, x(to) - x(from), row > 3 ? row - 1 : row, color, hint,
          {opacity});
    }
  };
  run.blocks.forEach((block, index) => {
    const of = (kind) => spansOf[index].filter((span) => span.kind === kind);
    const uses = of("compute"), reads = of("read"), copies = of("copy");
    const end = Infinity;
    const homes = run.homes.filter((home) => home.index === index);
    // Of the disk tier while it streams; of the RAM tier, or promoted to it.
    const isKept = (read) => {
      const last = homes.filter((home) => home.at_s <= read.begin).at(-1);
      return last ? last.stays || block.tier === "ram" : block.tier === "ram";
    };
    for (const read of reads.filter(isKept)) {
      const drop = homes.find((home) => !home.stays && home.at_s >= read.end);
      show(index, read.end, drop ? drop.at_s : end, "read", `${block.name} waits in RAM`, 0.35);
    }
    if (block.tier === "gpu") {
      const arrived = Math.min(...copies.map((copy) => copy.end));
      show(index, arrived, end, "copy", `${block.name} stays on the GPU`, 0.35);
    }
    for (const use of uses) {
      const read = reads.find((each) => each.pass === use.pass);
      const copy = copies.find((each) => each.pass === use.pass);
      if (block.tier === "disk" && read && !isKept(read)) {
        show(index, read.begin, copy ? copy.end : use.begin, "read",
             `${block.name} in a slot of host memory`, 0.35);
      }
      if (block.tier !== "gpu" && copy) {
        show(index, copy.begin, use.begin, "copy", `${block.name} in a slot of the GPU`, 0.35);
      }
      show(index, use.begin, use.end, "compute",
           `${block.name} is computed with, ${seconds(use.end - use.begin)}`, 1);
    }
    if (left > 0) {
      const most = Math.floor(left / 7.4), name = block.name;
      const short = name.length > most ? `…${name.slice(name.length - most + 1)}` : name;
      svg.append(shape("text", {x: 0, y: top + row * index + row - 3}, short));
    }
  });
  legend("places-legend", [["read", "in host memory"],
    ...(run.spans.some((span) => span.kind === "copy") ? [["copy", "on the GPU"]] : []),
    ["compute", "computed with"]]);
}

function table(id, head, rows) {
  const line = (cells, tag) => {
    const made = element("tr");
    cells.forEach((cell, index) => made.append(element(tag,
      {...(tag === "th" ? {scope: "col"} : {}), ...(index > 0 && cell && cell.left
        ? {class: "left"} : {}), ...(index === 0 ? {title: cell} : {})},
      cell && cell.left !== undefined ? cell.left : cell)));
    return made;
  };
  const top = element("thead"), body = element("tbody");
  top.append(line(head, "th"));
  body.append(...rows.map((row) => line(row, "td")));
  byId(id).replaceChildren(top, body);
}
function showPredicted() {
  const plan = run.plan;
  if (!plan) {
    byId("predicted-about").textContent = "The pack's plan predicts nothing: it was made without " +
      "measured rates. trash-panda plan measures them.";
    byId("predicted").remove();
    return;
  }
  byId("predicted-about").textContent = "A pass in the steady state: medians of the passes after " +
    "the first. The plan counts expanding, and decoding of exponents, as computing.";
  const planned = (key) => sum(plan.blocks.filter((block) => block[key])
    .map((block) => block[key][1] - block[key][0]));
  const busy = run.typical.busy_s, first = run.passes[0];
  const rows = [
    ["pass", run.typical.pass_s, plan.pass_s],
    ["first pass", first.end_s - first.begin_s, plan.first_pass_s],
    ["reading", busy.read || 0, planned("read_s")],
    ["decoding", busy.decode || 0, planned("decode_s")],
    ["copying", busy.copy || 0, planned("copy_s")],
    ["expanding", busy.expand || 0, 0],
    ["computing", busy.compute || 0, planned("compute_s")],
    ["stalled", stalled(run.typical), plan.stall_s],
  ].filter(([, measured, predicted]) => measured > 0 || predicted > 0);
  table("predicted", ["", "measured", "predicted", "difference"], rows.map(
    ([name, measured, predicted]) => [
      name, seconds(measured), predicted > 0 ? seconds(predicted) : "-",
      predicted > 0 ? `${measured >= predicted ? "+" : ""}${Math.round(
        100 * (measured / predicted - 1))} %` : "-"]));
}

const USES = [["base_bytes", "outside of blocks", "elsewhere"],
              ["ram_tier_bytes", "RAM tier", "read"], ["slot_bytes", "slots", "copy"],
              ["expanded_bytes", "decoded and expanded", "expand"],
              ["device_bytes", "on the GPU", "decode"]];
function showMemory() {
  const {svg, width} = picture(byId("memory"), 200, "Memory of weights over the run");
  const left = 60, bottom = 176, top = 10, all = run.memory;
  const used = USES.filter(([key]) => all.some((each) => each[key] > 0));
  const totals = all.map((each) => sum(used.map(([key]) => each[key])));
  const highest = Math.max(...totals, ...all.map((each) => each.process_bytes), 1);
  const last = Math.max(run.passes.at(-1).end_s, ...all.map((each) => each.at_s));
  const from = all.length > 0 ? all[0].at_s : 0;
  const x = (s) => left + (width - left - 1) * (s - from) / (last - from || 1);
  const y = (n) => bottom - (bottom - top) * n / highest;
  const each = step(highest, 4);
  for (let at = 0; at <= highest; at += each) {
    svg.append(shape("line", {x1: left, x2: width, y1: y(at), y2: y(at), stroke: "var(--line)"}));
    svg.append(shape("text", {x: left - 6, y: y(at) + 4, "text-anchor": "end"}, bytes(at)));
  }
  all.forEach((memory, index) => {
    const end = index + 1 < all.length ? all[index + 1].at_s : last;
    let at = 0;
    const hint = `${bytes(totals[index])} of weights\n` + used.map(([key, text]) =>
      `${text} ${bytes(memory[key])}`).join("\n");
    for (const [key, , color] of used) {
      if (memory[key] > 0) {
        box(svg, x(memory.at_s), y(at + memory[key]), x(end) - x(memory.at_s) + 0.4,
            y(at) - y(at + memory[key]), color, hint);
        at += memory[key];
      }
    }
  });
  const process = all.filter((memory) => memory.process_bytes > 0);
  if (process.length > 0) {
    const points = process.map((memory) => `${x(memory.at_s)},${y(memory.process_bytes)}`);
    points.push(`${x(last)},${y(process.at(-1).process_bytes)}`);
    svg.append(shape("polyline", {points: points.join(" "), fill: "none", stroke: "var(--mark)",
                                  "stroke-width": 2, "stroke-dasharray": "6 4"}));
  }
  svg.append(shape("text", {x: left, y: bottom + 16}, "streaming begins"));
  svg.append(shape("text", {x: width - 1, y: bottom + 16, "text-anchor": "end"},
                   `${seconds(last - from)} later`));
  const most = (key) => bytes(Math.max(...all.map((memory) => memory[key]), 0));
  legend("memory-legend", [
    ...used.map(([key, text, color]) => [color, `${text}, at most ${most(key)}`]),
    ...(process.length > 0
      ? [["mark", `physical memory of the process, at most ${most("process_bytes")}`, true]] : []),
  ]);
}

const BLOCKS_SHOWN = 24;
let allBlocks = false;
function showBlocks() {
  const kinds = KINDS.filter((kind) => run.blocks.some((block) => block.busy_s[kind] > 0));
  const names = {read: "read", decode: "decode", copy: "copy", expand: "expand",
                 compute: "compute"};
  const rows = allBlocks ? run.blocks : [...run.blocks.entries()].sort((a, b) =>
    b[1].stall_s - a[1].stall_s || a[0] - b[0]).slice(0, BLOCKS_SHOWN).map((entry) => entry[1]);
  const hasPlan = run.blocks.some((block) => block.predicted_compute_s !== undefined);
  table("blocks", ["block", {left: "tier"}, "stored", ...kinds.map((kind) => names[kind]),
                   ...(hasPlan ? ["predicted compute"] : []), "stalled", {left: "for"}],
        rows.map((block) => [block.name, {left: block.tier}, bytes(block.stored_bytes),
          ...kinds.map((kind) => block.busy_s[kind] > 0 ? seconds(block.busy_s[kind]) : "-"),
          ...(hasPlan ? [block.predicted_compute_s === undefined
            ? "-" : seconds(block.predicted_compute_s)] : []),
          block.stall_s > 0 ? seconds(block.stall_s) : "-", {left: block.stall_cause}]));
  byId("more").hidden = run.blocks.length <= BLOCKS_SHOWN;
  byId("more").textContent = allBlocks ? `the ${BLOCKS_SHOWN} that were waited for most`
                                       : `all ${run.blocks.length}, in order`;
}

function chosenPass() {
  return run.passes.find((pass) => String(pass.pass) === byId("pick").value) || run.passes[0];
}
function showPass() {
  const pass = chosenPass();
  byId("pick-about").textContent =
    `${seconds(pass.end_s - pass.begin_s)}, ${bytes(pass.read_bytes)} read`;
  showLanes(pass);
  showPlaces(pass);
}
function showAll() {
  showPasses();
  showPass();
  showMemory();
}

for (const list of [run.spans, run.stalls, run.homes]) {
  for (const each of list) each.name = run.blocks[each.index].name;
}
const spansOf = run.blocks.map(() => []);
for (const span of run.spans) spansOf[span.index].push(span);
// Large runs come with the spans of some passes only.
const drawn = run.passes.filter((pass) => pass.is_drawn);
byId("pick").replaceChildren(...drawn.map((pass) =>
  element("option", {value: pass.pass}, `pass ${pass.pass}`)));
// The one to begin with: the most typical.
const distance = (pass) => Math.abs(pass.end_s - pass.begin_s - run.typical.pass_s);
byId("pick").value = String(drawn.reduce((a, b) => (distance(b) < distance(a) ? b : a)).pass);
byId("pick").addEventListener("change", showPass);
byId("more").addEventListener("click", () => { allBlocks = !allBlocks; showBlocks(); });
showHead();
showPredicted();
showBlocks();
showAll();
let shownWidth = document.body.clientWidth;
addEventListener("resize", () => {
  if (document.body.clientWidth !== shownWidth) {
    shownWidth = document.body.clientWidth;
    showAll();
  }
});
