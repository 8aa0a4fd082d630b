
// Plays one message of each run: all by one clock, a canvas each. The data stands in the page; nothing is fetched.
"use strict";
(() => {
  const box = document.getElementById("player");
  if (!box) return;
  const SIZE = 1000, LINGER = 0.05, STAY = 1200, CHUNK = 100, FIRST = 0, AGAIN = 1, LAZY = 2;
  const KIND = { f: FIRST, a: AGAIN, g: LAZY, p: LAZY, l: LAZY };
  const runs = JSON.parse(document.getElementById("player-data").textContent).map(unpack);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const [button, scrub, clock, speed] = [".play", ".scrub", ".clock", ".speed"].map((name) => box.querySelector(name));
  const status = box.querySelector(".heard");
  const stages = [...box.querySelectorAll(".stage")].map((figure) => ({ figure, canvas: figure.querySelector("canvas") }));
  let now = 1, end = 1, playing = false, last = 0, inks = {};

  function unpack(run) {
    const count = run.from.length;
    const at = new Float64Array(count), sent = new Float64Array(count), kind = new Uint8Array(count);
    let time = 0;
    for (let i = 0; i < count; i++) {
      time += run.after[i];
      at[i] = time;
      sent[i] = time - run.took[i];
      kind[i] = KIND[run.what[i]];
    }
    const reachedAt = new Float64Array(run.nodes.length / 2).fill(Infinity);
    for (let i = count - 1; i >= 0; i--) if (kind[i] === FIRST) reachedAt[run.to[i]] = at[i];
    reachedAt[run.root] = 0;
    const every = Math.ceil(kind.filter((one) => one === AGAIN).length / STAY) || 1; // of old duplicates, what stays to be seen
    return { ...run, at, sent, kind, reachedAt, count, every, end: time, nodeCount: reachedAt.length };
  }

  function setUp() {
    for (const stage of stages) show(stage, Number(stage.figure.dataset.shows));
    box.hidden = false;
    box.nextElementSibling.hidden = true;
    button.addEventListener("click", () => (playing ? pause() : play()));
    scrub.addEventListener("input", () => { pause(); seek((end * scrub.value) / scrub.max); tell(); });
    for (const stage of stages) {
      const pick = stage.figure.querySelector("select");
      if (pick) pick.addEventListener("change", () => { show(stage, Number(pick.value)); restretch(); });
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readInks(); resize(); });
    new ResizeObserver(resize).observe(box);
    const watcher = new IntersectionObserver((entries) => { // what is not seen is not painted
      for (const entry of entries) stages.find((stage) => stage.canvas === entry.target).seen = entry.isIntersecting;
      draw();
    }, { rootMargin: "200px" });
    for (const stage of stages) watcher.observe(stage.canvas);
    readInks();
    restretch();
  }

  function show(stage, number) {
    stage.run = runs[number];
    stage.done = 0;
    const faded = stage.run.every > 1 ? [`Of duplicates that have come, one in ${stage.run.every} stays visible.`] : [];
    stage.figure.querySelector(".notes").textContent = [...stage.run.notes, ...faded].join(" ");
  }

  function restretch() { // the clock runs to the end of the slowest run that is shown
    const share = now / end;
    end = Math.max(1, ...stages.map((stage) => stage.run.end)) * 1.02;
    for (const stage of stages) stage.scale = 0; // to be painted from the ground
    seek(share * end);
  }

  function readInks() {
    const style = getComputedStyle(document.documentElement);
    const ink = (name) => style.getPropertyValue(name).trim();
    inks = { kinds: [ink("--k1"), ink("--k2"), ink("--k3")], ink: ink("--ink"), soft: ink("--soft"), grid: ink("--behind"), card: ink("--card") };
  }

  function resize() {
    for (const stage of stages) stage.scale = 0;
    draw();
  }

  function measure(stage) {
    const size = Math.max(1, Math.round(stage.canvas.clientWidth * (window.devicePixelRatio || 1)));
    stage.canvas.width = stage.canvas.height = size;
    stage.scale = size / SIZE;
    stage.base = layer(size);
    stage.past = layer(size);
    stage.done = 0;
    links(stage);
  }

  function layer(size) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = size;
    return canvas.getContext("2d");
  }

  function line(context, stage, a, b) {
    const { nodes } = stage.run, s = stage.scale;
    context.moveTo(nodes[2 * a] * s, nodes[2 * a + 1] * s);
    context.lineTo(nodes[2 * b] * s, nodes[2 * b + 1] * s);
  }

  function links(stage) {
    const all = stage.run.links;
    stage.base.strokeStyle = inks.grid;
    stage.base.globalAlpha = all.length > 2400 ? 0.35 : 0.8;
    stage.base.lineWidth = Math.max(0.5, stage.scale);
    stage.base.beginPath();
    for (let i = 0; i < all.length; i += 2) {
      line(stage.base, stage, all[i], all[i + 1]);
      if ((i + 2) % CHUNK === 0) { stage.base.stroke(); stage.base.beginPath(); }
    }
    stage.base.stroke();
  }

  // What has come to rest is painted once, on a layer; only what moves is painted anew.
  function settle(stage, until) {
    const { run, past } = stage;
    if (stage.done > 0 && run.at[stage.done - 1] > until) {
      past.clearRect(0, 0, past.canvas.width, past.canvas.height);
      stage.done = 0;
    }
    const stop = upper(run.at, until);
    stroke(past, stage, AGAIN, stage.done, stop, 0.25, (i) => i % run.every === 0);
    stroke(past, stage, FIRST, stage.done, stop, 0.85);
    stage.done = stop;
  }

  function stroke(context, stage, kind, begin, stop, alpha, test) {
    const { run, scale } = stage, unit = Math.max(1, 2 * scale);
    context.setLineDash([[], [7 * unit, 5 * unit], [unit, 4 * unit]][kind]);
    context.globalAlpha = alpha;
    context.strokeStyle = inks.kinds[kind];
    context.lineWidth = kind === FIRST ? 1.2 * unit : unit;
    context.beginPath();
    let held = 0;
    for (let i = begin; i < stop; i++) {
      if (run.kind[i] !== kind || (test && !test(i))) continue;
      line(context, stage, run.from[i], run.to[i]);
      if (++held % CHUNK === 0) { context.stroke(); context.beginPath(); } // one long path takes far longer than many
    }
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  function draw() {
    for (const stage of stages) paint(stage);
    clock.textContent = said(now);
    scrub.value = Math.round((scrub.max * now) / end);
    scrub.setAttribute("aria-valuetext", said(now));
  }

  function paint(stage) {
    const { run, canvas } = stage, context = canvas.getContext("2d"), linger = LINGER * Math.min(end, 2 * run.end);
    const stop = upper(run.at, now);
    count(stage, stop);
    if (!stage.seen) return;
    if (!stage.scale) measure(stage);
    settle(stage, now - linger);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(stage.base.canvas, 0, 0);
    context.drawImage(stage.past.canvas, 0, 0);
    stroke(context, stage, AGAIN, stage.done, stop, 0.55);
    stroke(context, stage, LAZY, stage.done, stop, 0.9);
    stroke(context, stage, FIRST, stage.done, stop, 1);
    dots(context, stage);
    if (!still.matches) heads(context, stage, stop, linger);
  }

  function upper(times, time) { // how many are at or before
    let [low, high] = [0, times.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function dots(context, stage) {
    const { run, scale } = stage, few = run.nodeCount <= 300;
    const size = Math.max(1.1, (few ? 7 : run.nodeCount <= 1500 ? 4.5 : 2.2) * scale);
    for (const there of [false, true]) {
      context.beginPath();
      for (let i = 0; i < run.nodeCount; i++) {
        if (run.reachedAt[i] <= now !== there) continue;
        const x = run.nodes[2 * i] * scale, y = run.nodes[2 * i + 1] * scale;
        context.moveTo(x + size, y);
        context.arc(x, y, size, 0, 7);
      }
      context.fillStyle = there ? inks.kinds[FIRST] : inks.card;
      context.strokeStyle = inks.soft;
      context.lineWidth = Math.max(0.6, scale);
      context.fill();
      if (!there) context.stroke();
    }
    const edge = Math.max(7, 18 * scale);
    context.fillStyle = inks.ink;
    context.fillRect(run.nodes[2 * run.root] * scale - edge / 2, run.nodes[2 * run.root + 1] * scale - edge / 2, edge, edge);
  }

  // On the way: a disc, a cross or a diamond. When an announcement came is not told, so it is seen for a while after it was sent.
  function heads(context, stage, stop, linger) {
    const { run, scale } = stage, size = Math.max(2, 6 * scale);
    const longest = run.longest ?? (run.longest = run.took.reduce((most, took) => Math.max(most, took), 0));
    for (const kind of [AGAIN, LAZY, FIRST]) {
      context.beginPath();
      const [begin, finish] = kind === LAZY ? [stage.done, stop] : [stop, run.count];
      for (let i = begin; i < finish && run.at[i] - longest <= now; i++) {
        if (run.kind[i] !== kind || run.sent[i] > now) continue;
        const way = kind === LAZY ? (now - run.at[i]) / linger : (now - run.sent[i]) / Math.max(1, run.took[i]);
        const [a, b] = [2 * run.from[i], 2 * run.to[i]];
        const x = (run.nodes[a] + (run.nodes[b] - run.nodes[a]) * way) * scale;
        const y = (run.nodes[a + 1] + (run.nodes[b + 1] - run.nodes[a + 1]) * way) * scale;
        shape(context, kind, x, y, size);
      }
      context.fillStyle = context.strokeStyle = inks.kinds[kind];
      context.lineWidth = Math.max(1, 2 * scale);
      if (kind === AGAIN) context.stroke();
      else context.fill();
    }
  }

  function shape(context, kind, x, y, size) {
    if (kind === FIRST) { context.moveTo(x + size, y); context.arc(x, y, size, 0, 7); }
    else if (kind === AGAIN) {
      const arm = 0.7 * size;
      context.moveTo(x - arm, y - arm); context.lineTo(x + arm, y + arm);
      context.moveTo(x - arm, y + arm); context.lineTo(x + arm, y - arm);
    } else {
      context.moveTo(x, y - size); context.lineTo(x + size, y); context.lineTo(x, y + size); context.lineTo(x - size, y);
      context.closePath();
    }
  }

  function count(stage, stop) {
    const { run } = stage, sums = run.sums ?? (run.sums = summed(run));
    const found = stop ? sums[stop - 1] : [0, 0, 0];
    const texts = {
      reached: `${found[FIRST].toLocaleString("en")} of ${(run.nodeCount - 1).toLocaleString("en")}`,
      copies: (found[FIRST] + found[AGAIN]).toLocaleString("en"),
      again: found[AGAIN].toLocaleString("en"),
      lazy: found[LAZY].toLocaleString("en"),
    };
    for (const cell of stage.figure.querySelectorAll("[data-count]")) cell.textContent = texts[cell.dataset.count];
    stage.words = `${run.label}: reached ${texts.reached}, ${texts.copies} copies, ${texts.again} duplicates, ${texts.lazy} announcements`;
    stage.canvas.setAttribute("aria-label", `At ${said(now)}, ${stage.words}`);
  }

  function summed(run) {
    const now = [0, 0, 0];
    return Array.from(run.kind, (kind) => { now[kind]++; return [...now]; });
  }

  function said(tenths) {
    const ms = tenths / 10;
    return ms < 10000 ? `${ms.toFixed(end < 1000 ? 1 : 0)} ms` : `${(ms / 1000).toFixed(1)} s`;
  }

  function seek(time) {
    now = Math.min(end, Math.max(0, time));
    draw();
  }

  function tell() { status.textContent = `At ${said(now)}. ${stages.map((stage) => stage.words).join(". ")}.`; }

  function play() {
    if (now >= end) seek(0);
    playing = true;
    last = performance.now();
    button.textContent = "Pause";
    requestAnimationFrame(tick);
  }

  function pause() {
    playing = false;
    button.textContent = "Play";
  }

  function tick(time) {
    if (!playing) return;
    const step = still.matches ? 1000 : 0; // who wants no motion sees a still picture each second
    const passed = Math.max(0, time - last);
    if (passed >= step) {
      last = time;
      seek(now + (end * passed) / (1000 * Number(speed.value)));
    }
    if (now >= end) { pause(); tell(); }
    else requestAnimationFrame(tick);
  }

  setUp();
})();
