
// Draws the measure that is picked against each swept parameter: a line a stack, dots with whiskers.
"use strict";
(() => {
  const box = document.getElementById("sweep");
  if (!box) return;
  const { lines, axes, measures, points } = JSON.parse(document.getElementById("sweep-data").textContent);
  const HEIGHT = 230, COLOURS = 6, TICKS = 5;
  const sample = document.createElement("div");
  sample.innerHTML = "<svg></svg>";
  const space = sample.firstChild.namespaceURI;
  const measure = box.querySelector(".measure");
  const held = [...box.querySelectorAll(".held")];
  const series = lines < 0 ? ["all"] : axes[lines].values;

  function setUp() {
    box.hidden = false;
    box.nextElementSibling.hidden = true;
    for (const pick of [measure, ...held]) pick.addEventListener("change", draw);
    new ResizeObserver(draw).observe(box);
    if (lines >= 0) series.forEach((name, place) => box.querySelector(".legend").append(key(name, place)));
    draw();
  }

  function key(name, place) {
    const item = document.createElement("li");
    const drawn = node("svg", { width: 30, height: 12, "aria-hidden": "true" });
    drawn.append(node("line", { class: style("line", place), x1: 0, x2: 30, y1: 6, y2: 6 }), dot(place, 15, 6));
    item.append(drawn, name);
    return item;
  }

  function style(kind, place) { return `${kind} c${1 + (place % COLOURS)}`; }

  function node(name, attributes, text) {
    const found = document.createElementNS(space, name);
    for (const [attribute, value] of Object.entries(attributes)) found.setAttribute(attribute, value);
    if (text !== undefined) found.textContent = text;
    return found;
  }

  function dot(place, x, y) { // lines beyond the colours have squares
    if (place < COLOURS) return node("circle", { class: style("dot", place), cx: x, cy: y, r: 4 });
    return node("rect", { class: style("dot", place), x: x - 4, y: y - 4, width: 8, height: 8 });
  }

  function draw() {
    const across = axes.map((axis, place) => place).filter((place) => place !== lines && axes[place].values.length > 1);
    const shown = across.length ? across : lines >= 0 ? [lines] : axes.length ? [0] : [];
    box.querySelector(".plots").replaceChildren(...shown.map(chart));
  }

  function kept(axis) { // the points of a chart: other parameters are held
    const wanted = held.map((pick) => [Number(pick.dataset.axis), Number(pick.value)]);
    return points.filter(([place]) => wanted.every(([at, value]) => at === axis || value < 0 || place[at] === value));
  }

  function chart(axis) {
    const which = measures[measure.value], { name, values, numbers } = axes[axis];
    const found = kept(axis).map(([place, spreads]) => ({ at: place[axis], line: lines < 0 ? 0 : place[lines], spread: spreads[measure.value] }));
    const known = found.filter((one) => one.spread);
    const figure = document.createElement("figure");
    figure.className = "card";
    const caption = document.createElement("figcaption"), title = document.createElement("h3");
    title.textContent = `${which.name}${which.share ? ", %" : ""} by ${name}`;
    const others = held.filter((pick) => Number(pick.dataset.axis) !== axis && Number(pick.value) >= 0);
    const words = document.createElement("p");
    words.textContent = others.map((pick) => `${axes[pick.dataset.axis].name} ${pick.selectedOptions[0].textContent}`).join(", ");
    caption.append(title, words);
    figure.append(caption);
    if (!known.length) {
      const nothing = document.createElement("p");
      nothing.className = "nothing";
      nothing.textContent = "Nothing to show: no run here has this measure.";
      figure.append(nothing);
      return figure;
    }
    const ends = known.flatMap(({ spread }) => spread.filter((end) => end !== null));
    const y = scale(Math.min(...ends), Math.max(...ends), which.share);
    const plot = document.createElement("div");
    plot.className = "plot plot-sweep";
    const heard = known.map((one) => `${series[one.line]} at ${values[one.at]}: ${said(one.spread[0], which.share)}`).join("; ");
    const svg = node("svg", { role: "img", width: "100%", height: HEIGHT, "aria-label": `${title.textContent}. ${heard}` });
    const place = positions(values, numbers);
    grid(svg, y, which.share, values, place, name);
    for (let line = 0; line < series.length; line++) curve(svg, line, known.filter((one) => one.line === line), place, y, axis !== lines, which.share, values);
    plot.append(svg);
    figure.append(plot);
    return figure;
  }

  function positions(values, numbers) { // percent across; values by size where they are numbers, else side by side
    if (values.length < 2) return [50];
    if (!numbers) return values.map((_, i) => 6 + (88 * i) / (values.length - 1));
    const [low, high] = [numbers[0], numbers[numbers.length - 1]];
    const ratio = low > 0 && high / low >= 20; // over powers of ten, by their logarithms
    const share = (value) => (ratio ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
    return numbers.map((value) => 6 + 88 * share(value));
  }

  function scale(low, high, share) {
    const width = share ? Math.max(high - low, 0.01) : high - low || Math.abs(high) * 0.2 || 1;
    const power = 10 ** Math.floor(Math.log10(width / TICKS));
    const step = power * [1, 2, 5, 10].find((factor) => width / (power * factor) <= TICKS);
    let bottom = Math.floor(low / step - 1e-9) * step;
    const top = share ? Math.min(1, Math.ceil(high / step + 1e-9) * step) : Math.ceil(high / step + 1e-9) * step;
    if (low >= 0 && bottom < 0) bottom = 0;
    if (share && bottom > top - 0.01) bottom = top - 0.01;
    return { bottom, top, step, at: (value) => HEIGHT * (1 - (Math.min(top, Math.max(bottom, value)) - bottom) / (top - bottom)) };
  }

  function said(value, share) {
    const shown = share ? value * 100 : value;
    return shown.toLocaleString("en", { maximumSignificantDigits: Math.abs(shown) >= 1000 ? 6 : 4 });
  }

  function grid(svg, y, share, values, place, name) {
    for (let i = 0; i <= Math.round((y.top - y.bottom) / y.step); i++) {
      const value = y.bottom + i * y.step, at = y.at(value);
      svg.append(node("line", { class: "grid", x1: 0, x2: "100%", y1: at, y2: at }));
      svg.append(node("text", { class: "tick left", x: 0, y: at, dx: -8, dy: 4 }, said(value, share)));
    }
    let last = -100;
    const room = Math.max(12, (100 * 8 * Math.max(...values.map((value) => Math.min(value.length, 14)))) / Math.max(200, box.clientWidth / 2));
    values.forEach((value, i) => {
      if (place[i] - last < Math.min(room, 100 / values.length) - 0.01 && place[i] - last < 10) return;
      last = place[i];
      const short = value.length > 16 ? `${value.slice(0, 15)}\u2026` : value;
      svg.append(node("text", { class: "tick", x: `${place[i]}%`, y: HEIGHT + 18 }, short));
    });
    svg.append(node("text", { class: "name middle", x: "50%", y: HEIGHT + 36 }, name));
  }

  function curve(svg, line, found, place, y, joined, share, values) {
    found.sort((a, b) => a.at - b.at);
    const aside = joined ? (line - (series.length - 1) / 2) * 5 : 0; // so that whiskers do not hide each other
    const shifted = node("svg", { x: aside, overflow: "visible" });
    if (joined) for (let i = 1; i < found.length; i++) {
      const [a, b] = [found[i - 1], found[i]];
      const ends = { x1: `${place[a.at]}%`, y1: y.at(a.spread[0]), x2: `${place[b.at]}%`, y2: y.at(b.spread[0]) };
      shifted.append(node("line", { class: style("line", line), ...ends }));
    }
    for (const { at, spread: [mean, low, high] } of found) {
      const x = `${place[at]}%`;
      if (low !== null && high !== null) shifted.append(node("line", { class: style("whisker", line), x1: x, x2: x, y1: y.at(low), y2: y.at(high) }));
      const mark = node("svg", { x, y: y.at(mean), overflow: "visible" });
      mark.append(dot(line, 0, 0));
      const range = low === null || high === null ? "" : ` (${said(low, share)} to ${said(high, share)})`;
      mark.append(node("title", {}, `${series[line]} at ${values[at]}: ${said(mean, share)}${range}`));
      shifted.append(mark);
    }
    svg.append(shifted);
  }

  setUp();
})();
