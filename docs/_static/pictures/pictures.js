/* The pictures that move: each reads the JSON that its page holds. Without this script a page shows figure and table. */
(function () {
  'use strict';
  const SVG = 'http://www.w3.org/2000/svg';
  const isCalm = window.matchMedia('(prefers-reduced-motion: reduce)').matches;
  const range = (count) => Array.from({ length: count }, (_, k) => k);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const say = (value) => Math.abs(value) > 0 && (Math.abs(value) < 1e-2 || Math.abs(value) >= 1e5)
    ? value.toExponential(1) : String(Number(value.toPrecision(3)));

  function make(parent, name, attributes, text) {
    const isDrawn = name === 'svg' || parent.namespaceURI === SVG;
    const node = isDrawn ? document.createElementNS(SVG, name) : document.createElement(name);
    Object.entries(attributes || {}).forEach(([key, value]) => node.setAttribute(key, value));
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  }

  /* Axes: `ends` of the values, `ticks`, `by` what function of a value they are linear in. */
  const powers = (low, high, every) => range(Math.floor((high - low) / every) + 1).map((k) => 10 ** (low + every * k));
  const linear = (label, ends, ticks) => ({ label, ends, ticks, by: (value) => value, told: say });
  const logarithmic = (label, ends, every) => ({
    label, ends, by: Math.log10,
    ticks: powers(Math.ceil(Math.log10(ends[0]) - 1e-9), Math.floor(Math.log10(ends[1]) + 1e-9), every || 1),
    told: (value) => value === 1 ? '1' : `1e${Math.round(Math.log10(value))}`,
  });
  const curbed = (label, ends) => ({
    label, ends, by: Math.asinh, told: say,
    ticks: [-1000, -100, -10, -1, 0, 1, 10, 100, 1000].filter((tick) => tick >= ends[0] && tick <= ends[1]),
  });

  /* A panel with axes. What is drawn is drawn in layers, so that what stays need not be drawn again. */
  function chart(parent, title, x, y, height) {
    const box = { left: 50, top: 28, width: 300, height: (height || 290) - 72 };
    const drawing = make(parent, 'svg', { viewBox: `0 0 360 ${height || 290}`, role: 'img', 'aria-label': title });
    const heading = make(drawing, 'text', { x: 6, y: 16, class: 'heading' }, title);
    const scale = (axis, start, length) => (value) => start + length *
      (axis.by(value) - axis.by(axis.ends[0])) / (axis.by(axis.ends[1]) - axis.by(axis.ends[0]));
    const across = scale(x, box.left, box.width), up = scale(y, box.top + box.height, -box.height);
    const bottom = box.top + box.height;
    x.ticks.forEach((tick, k) => {
      make(drawing, 'line', { x1: across(tick), x2: across(tick), y1: box.top, y2: bottom, class: 'grid' });
      const told = x.names ? x.names[k] : x.told(tick);
      make(drawing, 'text', { x: across(tick), y: bottom + 15, 'text-anchor': 'middle' }, told);
    });
    y.ticks.forEach((tick, k) => {
      make(drawing, 'line', { x1: box.left, x2: box.left + box.width, y1: up(tick), y2: up(tick), class: 'grid' });
      const told = y.names ? y.names[k] : y.told(tick);
      make(drawing, 'text', { x: box.left - 5, y: up(tick) + 4, 'text-anchor': 'end' }, told);
    });
    make(drawing, 'text', { x: box.left + box.width / 2, y: bottom + 34, 'text-anchor': 'middle' }, x.label);
    const turned = `rotate(-90 12 ${box.top + box.height / 2})`;
    make(drawing, 'text', { x: 12, y: box.top + box.height / 2, 'text-anchor': 'middle', transform: turned }, y.label);
    const { left, top, width } = box;
    // A drawing in the drawing cuts off what lies outside of the axes.
    const seen = { x: left, y: top, width, height: box.height, viewBox: `${left} ${top} ${width} ${box.height}` };
    const inside = make(drawing, 'svg', seen);
    const layer = () => {
      const group = make(inside, 'g');
      return {
        clear: () => group.replaceChildren(),
        line: (points, look) => make(group, 'polyline', {
          points: points.map(([a, b]) => `${across(a).toFixed(1)},${up(b).toFixed(1)}`).join(' '), class: `line ${look}`,
        }),
        dot: (a, b, radius, look) => make(group, 'circle', { cx: across(a), cy: up(b), r: radius, class: look }),
        bar: (a, thick, b, look) => make(group, 'rect', {
          x: across(a) - thick / 2, width: thick, y: up(b), height: Math.max(bottom - up(b), 0), class: look,
        }),
        segments: (pieces, look) => make(group, 'path', {
          class: `line ${look}`,
          d: pieces.map(([a, b]) => `M${across(a[0]).toFixed(1)} ${up(a[1]).toFixed(1)}` +
            `L${across(b[0]).toFixed(1)} ${up(b[1]).toFixed(1)}`).join(''),
        }),
      };
    };
    const at = (event) => {
      const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(drawing.getScreenCTM().inverse());
      const back = (share, ends) => ends[0] + share * (ends[1] - ends[0]);
      return [back((place.x - left) / width, x.ends), back((bottom - place.y) / box.height, y.ends)];
    };
    const entitle = (text) => { heading.textContent = text; drawing.setAttribute('aria-label', text); };
    return { drawing, layer, at, entitle, x, y };
  }
  const upright = (layer, panel, value, look) => layer.line(panel.y.ends.map((end) => [value, end]), look);
  const level = (layer, panel, value, look) => layer.line(panel.x.ends.map((end) => [end, value]), look);

  function choice(parent, label, options, act) {
    const box = make(parent, 'label', {}, `${label} `);
    const select = make(box, 'select');
    options.forEach((option, k) => make(select, 'option', { value: k }, option));
    select.addEventListener('change', act);
    return select;
  }

  function slider(parent, label, last, start, act, told) {
    const box = make(parent, 'label', { class: 'slider' }, `${label} `);
    const input = make(box, 'input', { type: 'range', min: 0, max: last, value: start, step: 1 });
    const output = make(box, 'output');
    const show = () => { output.textContent = told(Number(input.value)); input.setAttribute('aria-valuetext', output.textContent); };
    input.addEventListener('input', () => { show(); act(); });
    show();
    return { input, get: () => Number(input.value), set: (value) => { input.value = value; show(); act(); }, show };
  }

  /* A button that moves a slider; none for who asked for less motion. */
  function player(parent, moved, every) {
    if (isCalm) return;
    const button = make(parent, 'button', { type: 'button' }, 'Play');
    let timer = 0;
    const stop = () => { window.clearInterval(timer); timer = 0; button.textContent = 'Play'; };
    button.addEventListener('click', () => {
      if (timer) { stop(); return; }
      if (moved.get() >= Number(moved.input.max)) moved.set(0);
      button.textContent = 'Pause';
      timer = window.setInterval(() => {
        moved.set(moved.get() + 1);
        if (moved.get() >= Number(moved.input.max)) stop();
      }, every);
    });
  }

  function key(parent, entries) {
    const list = make(parent, 'ul', { class: 'key' });
    entries.forEach(([look, text]) => { make(make(list, 'li'), 'span', { class: `swatch ${look}` }).after(` ${text}`); });
  }

  function softmax(logits) {
    const most = Math.max(...logits), weights = logits.map((logit) => Math.exp(logit - most));
    const sum = weights.reduce((a, b) => a + b, 0);
    return weights.map((weight) => weight / sum);
  }

  const RUNS = {
    W: 'W, published rule', KQ: '(K, Q), published rule', 'W, exact': 'W, exact gradient', 'KQ, exact': '(K, Q), exact gradient',
  };

  function trajectories(data, controls, panels, status) {
    const names = Object.keys(data.steps), T = data.seeds[0].X[0].length;
    const run = choice(controls, 'Training', names.map((name) => RUNS[name]), () => change());
    const seed = choice(controls, 'Seed', data.seeds.map((one) => `${one.seed} (${one.place})`), () => change());
    const step = slider(controls, 'Step', 1, 0, () => draw(), (k) => data.steps[names[run.value]][k].toLocaleString('en'));
    player(controls, step, 80);
    const reach = 1.25 * Math.max(...data.seeds.flatMap((one) => one.X.flat(2)).map(Math.abs));
    const ends = [-reach, reach], ticks = [-1, 0, 1].filter((tick) => Math.abs(tick) < reach);
    const plane = chart(panels, 'Tokens and W z', linear('first coordinate', ends, ticks), linear('second', ends, ticks), 372);
    const places = [0, 1].flatMap((i) => range(T).map((t) => i * (T + 1) + t));
    const names2 = [0, 1].flatMap(() => range(T).map((t) => t + 1));
    const tokens = { ...linear('token of input 1 (left), input 2 (right)', [-1, 2 * T + 1], places), names: names2 };
    const bars = chart(panels, 'Attention', tokens, linear('probability', [0, 1], [0, 0.5, 1]));
    const last = Math.max(...names.map((name) => data.steps[name].at(-1)));
    const far = chart(panels, 'Distance from both solutions', logarithmic('step', [1, last]), logarithmic('1 - cos', [1e-8, 2], 2));
    const [stays, moves, heights, curves, cursor] = [plane, plane, bars, far, far].map((panel) => panel.layer());
    key(panels, [['first', 'input 1'], ['second', 'input 2'], ['ray', 'ray of the solution'],
      ['frobenius', 'from the Frobenius solution'], ['nuclear', 'from the nuclear solution']]);
    const looks = ['first', 'second'];

    function change() {
      step.input.max = data.steps[names[run.value]].length - 1;
      const one = data.seeds[seed.value], own = one.runs[names[run.value]], steps = data.steps[names[run.value]];
      const norm = names[run.value].startsWith('W') ? 'frobenius' : 'nuclear';
      stays.clear(); curves.clear();
      one.X.forEach((input, i) => {
        const [a, b] = own.ray[norm][i], long = Math.hypot(a, b) / (2 * reach);
        stays.line([[0, 0], [a / long, b / long]], 'ray');
        input.forEach(([p, q], t) => stays.dot(p, q, t === own.selected[i] ? 8 : 5, `token ${looks[i]}` + (t === own.selected[i] ? ' chosen' : '')));
      });
      Object.entries(own.off).forEach(([name, off]) => curves.line(steps.map((k, j) => [k, Math.max(off[j], 1e-9)]), name));
      plane.entitle(`Tokens and W z, rays of the ${norm === 'nuclear' ? 'nuclear' : 'Frobenius'} solution`);
      step.set(Math.min(step.get(), steps.length - 1));
    }
    function draw() {
      const one = data.seeds[seed.value], own = one.runs[names[run.value]], k = step.get();
      moves.clear(); heights.clear(); cursor.clear();
      const chosen = one.X.map((input, i) => {
        const along = own.path.map((points) => points[i]);
        const size = 0.85 * reach / Math.max(...along.map(([a, b]) => Math.hypot(a, b)), 1e-300);
        const scaled = along.slice(0, k + 1).map(([a, b]) => [a * size, b * size]);
        moves.line([[0, 0], ...scaled], looks[i]);
        moves.line([[0, 0], scaled[k]], `${looks[i]} arrow`);
        moves.dot(...scaled[k], 4, looks[i]);
        const attention = softmax(input.map(([p, q]) => p * along[k][0] + q * along[k][1]));
        attention.forEach((share, t) => heights.bar(places[i * T + t], 240 / (2 * T + 2), share, looks[i]));
        return attention[own.selected[i]];
      });
      const at = data.steps[names[run.value]][k];
      upright(cursor, far, at, 'cursor');
      status.textContent = `Step ${at.toLocaleString('en')}: attention on the selected tokens ${chosen.map(say).join(' and ')}; ` +
        `1 - cos is ${say(own.off.frobenius[k])} (Frobenius) and ${say(own.off.nuclear[k])} (nuclear).`;
    }
    change();
  }

  /* Pieces of the contour of a level, by cells of the grid. */
  function contour(first, second, values, height) {
    const pieces = [];
    for (let j = 0; j + 1 < second.length; j += 1) {
      for (let i = 0; i + 1 < first.length; i += 1) {
        const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
        const found = [];
        corners.forEach(([a, b], k) => {
          const [c, d] = corners[(k + 1) % 4], low = values[b][a] - height, high = values[d][c] - height;
          const share = low / (low - high);
          if (low * high < 0) found.push([first[a] + share * (first[c] - first[a]), second[b] + share * (second[d] - second[b])]);
        });
        for (let k = 0; k + 1 < found.length; k += 2) pieces.push([found[k], found[k + 1]]);
      }
    }
    return pieces;
  }

  /* Steepest descent on the recorded risk, whose slopes are differences on the grid, interpolated between its points. */
  function descend(data, risk, start) {
    const { first, second } = data, wide = first.length - 1, high = second.length - 1;
    const gap = [first[1] - first[0], second[1] - second[0]];
    const slope = (i, j) => {
      const [a, b, c, d] = [Math.max(i - 1, 0), Math.min(i + 1, wide), Math.max(j - 1, 0), Math.min(j + 1, high)];
      return [(risk[j][b] - risk[j][a]) / ((b - a) * gap[0]), (risk[d][i] - risk[c][i]) / ((d - c) * gap[1])];
    };
    const path = [start];
    for (let k = 0; k < 3000; k += 1) {
      const [x, y] = path.at(-1), a = (x - first[0]) / gap[0], b = (y - second[0]) / gap[1];
      if (a < 0 || b < 0 || a > wide || b > high) return { path, isOut: true };
      const i = Math.min(Math.floor(a), wide - 1), j = Math.min(Math.floor(b), high - 1), s = a - i, t = b - j;
      const [p, q, r, u] = [slope(i, j), slope(i + 1, j), slope(i, j + 1), slope(i + 1, j + 1)];
      const g = [0, 1].map((n) => (1 - t) * ((1 - s) * p[n] + s * q[n]) + t * ((1 - s) * r[n] + s * u[n]));
      const length = Math.hypot(...g);
      if (length < 1e-6 || (k > 50 && Math.hypot(x - path[k - 40][0], y - path[k - 40][1]) < 0.15)) return { path, isOut: false };
      path.push([x - 0.03 * g[0] / length, y - 0.03 * g[1] / length]);
    }
    return { path, isOut: false };
  }

  function trap(data, controls, panels, status) {
    const { first, second } = data, ends = (values) => [values[0], values.at(-1)];
    const which = choice(controls, 'Instance', data.landscapes.map((one) => one.name), () => change());
    const started = (label, values, at) => slider(controls, label, values.length - 1, at, () => draw(), (k) => say(values[k]));
    const x = started('Start, first coordinate', first, 18), y = started('second coordinate', second, 42);
    const panel = chart(panels, 'Risk over W z: click a start', linear('first coordinate of W z', ends(first), [-6, -4, -2, 0, 2]),
      linear("second, the scores'", ends(second), [-2, 0, 2]), 260);
    const back = panel.layer(), front = panel.layer();
    panels.classList.add('single');
    panel.drawing.addEventListener('click', (event) => {
      const [a, b] = panel.at(event), near = (values, value) => Math.round((value - values[0]) / (values[1] - values[0]));
      x.set(near(first, a)); y.set(near(second, b));
    });
    key(panels, [['contour', 'equal risk'], ['second', 'steepest descent'], ['minimum', 'local minimum'], ['saddle', 'saddle'],
      ['ray', 'direction of the solution']]);

    function change() {
      const one = data.landscapes[which.value], risks = one.risk.flat().sort((a, b) => a - b);
      back.clear();
      range(24).forEach((k) => back.segments(contour(first, second, one.risk, risks[Math.floor((k + 0.5) * risks.length / 24)]), 'contour'));
      const [a, b] = one.solution;
      back.line([[0, 0], [20 * a, 20 * b]], 'ray');
      one.minima.forEach((place) => back.dot(place, 0, 6, 'minimum'));
      one.saddles.forEach((place) => back.dot(place, 0, 6, 'saddle'));
      draw();
    }
    function draw() {
      const one = data.landscapes[which.value], start = [first[x.get()], second[y.get()]];
      const { path, isOut } = descend(data, one.risk, start), end = path.at(-1);
      const isTrapped = !isOut && one.minima.some((place) => Math.hypot(end[0] - place, end[1]) < 0.6);
      front.clear();
      front.line(path, 'second');
      front.dot(...start, 5, 'second');
      const what = isTrapped ? 'ends at the local minimum: trapped'
        : isOut ? `leaves the picture at (${say(end[0])}, ${say(end[1])})` : `comes to rest near (${say(end[0])}, ${say(end[1])})`;
      status.textContent = `From (${start.map(say).join(', ')}) steepest descent ${what}.`;
    }
    change();
  }

  function ranks(data, controls, panels, status) {
    const tolerances = range(61).map((k) => -12 + k / 5);
    const which = choice(controls, 'Problems', data.settings.map((one) => one.name), () => change());
    const slide = slider(controls, 'Tolerance', 55, 25, () => draw(), (k) => `1e${tolerances[k].toFixed(1)}`);
    const most = Math.max(...data.settings.map((one) => one.certified[0].length));
    const place = linear('which singular value', [0.2, most + 0.8], range(most).map((k) => k + 1).filter((k) => most < 8 || k % 2));
    const values = chart(panels, 'Singular values over the largest', place, { ...linear('log10', [-17.5, 0.5], [-16, -12, -8, -4, 0]) });
    const counts = chart(panels, 'Mean rank against the tolerance', linear('log10 of the tolerance', [-12, -1], [-12, -9, -6, -3]),
      linear('mean rank', [0, most + 0.5], range(most).filter((k) => k % 5 === 0).concat(most % 5 ? [] : [most])));
    const [dots, lines, cut, cursor] = [values.layer(), counts.layer(), values.layer(), counts.layer()];
    key(panels, [['frobenius', 'certified'], ['nuclear', `inexact (${data.settings[0].solver})`], ['published', 'published tolerance']]);
    const rank = (problems, least) => mean(problems.map((problem) => problem.filter((value) => value > least).length));
    const kinds = [['certified', 'frobenius', -0.15], ['inexact', 'nuclear', 0.15]];

    function change() {
      const one = data.settings[which.value];
      dots.clear(); lines.clear();
      kinds.forEach(([kind, look, aside]) => {
        one[kind].forEach((problem) => problem.forEach((value, k) => dots.dot(k + 1 + aside, value, 2, look)));
        lines.line(tolerances.slice(0, 56).map((least) => [least, rank(one[kind], least)]), look);
      });
      level(dots, values, one.published, 'published');
      upright(lines, counts, one.published, 'published');
      draw();
    }
    function draw() {
      const one = data.settings[which.value], least = tolerances[slide.get()];
      cut.clear(); cursor.clear();
      level(cut, values, least, 'cursor');
      upright(cursor, counts, least, 'cursor');
      status.textContent = `Mean nuclear rank of ${one.certified.length} problems, singular values above 1e${least.toFixed(1)} of the ` +
        `largest: ${kinds.map(([kind]) => `${rank(one[kind], least).toFixed(2)} (${kind === 'inexact' ? one.solver : kind})`).join(', ')}.`;
    }
    change();
  }

  function atlas(data, controls, panels, status, root) {
    const last = Math.max(...data.rows.map((row) => row.steps.at(-1)));
    const panel = chart(panels, 'Margin ratio', logarithmic('step', [1, last]), linear('mean margin ratio', [0, 1.02], [0, 0.25, 0.5, 0.75, 1]));
    const layer = panel.layer(), cells = [...root.parentNode.querySelectorAll(`#${root.id}-table td[data-norm]`)];
    panels.classList.add('single');
    key(panels, [['frobenius', 'the chosen norm'], ['contour', 'the other norms']]);
    function show(cell) {
      const row = data.rows[cell.dataset.row], chosen = Number(cell.dataset.norm);
      layer.clear();
      row.ratio.forEach((ratio, j) => { if (j !== chosen) layer.line(row.steps.map((k, i) => [k, ratio[i]]), 'contour'); });
      layer.line(row.steps.map((k, i) => [k, row.ratio[chosen][i]]), 'frobenius');
      cells.forEach((one) => { one.tabIndex = one === cell ? 0 : -1; one.classList.toggle('shown', one === cell); });
      panel.entitle(`${row.weights === 'W' ? 'W' : '(K, Q)'}: ${row.name}`);
      status.textContent = `${data.norms[chosen]}: margin ratio ${say(row.ratio[chosen].at(-1))} after ${row.steps.at(-1).toLocaleString('en')} ` +
        `steps, ${row.seeds} seeds. Predicted: ${row.predicted || 'none of these norms'}.`;
    }
    cells.forEach((cell, k) => {
      const wide = data.norms.length, steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -wide, ArrowDown: wide };
      cell.addEventListener('mouseenter', () => show(cell));
      cell.addEventListener('focus', () => show(cell));
      cell.addEventListener('click', () => cell.focus());
      cell.addEventListener('keydown', (event) => {
        const to = cells[k + steps[event.key]];
        if (to) { event.preventDefault(); to.focus(); }
      });
    });
    show(cells[0]);
  }

  function margins(data, controls, panels, status) {
    const said = (text) => `seed ${text.seed}, ${text.feasible ? 'no conflict' : 'with a conflict'}`;
    const which = choice(controls, 'Text', data.texts.map(said), () => change());
    const step = slider(controls, 'Step', data.steps.length - 1, 0, () => draw(), (k) => data.steps[k].toLocaleString('en'));
    player(controls, step, 900);
    const all = data.texts.flatMap((text) => text.margins.flat(2)), ends = [1.3 * Math.min(...all, -1), 1.3 * Math.max(...all)];
    const along = chart(panels, 'Every margin along the steps', logarithmic('step', [data.steps[0], data.steps.at(-1)]), curbed('margin', ends));
    const kinds = { ...linear('', [-0.5, data.kinds.length - 0.5], range(data.kinds.length)), names: ['A', 'B', 'C'] };
    const strip = chart(panels, 'Margins at this step', curbed('margin', ends), kinds);
    const looks = ['first', 'third', 'second'], [lines, cursor, dots] = [along.layer(), along.layer(), strip.layer()];
    key(panels, data.kinds.map((kind, k) => [looks[k], `${'ABC'[k]}: ${kind}`]));
    function change() {
      lines.clear();
      data.texts[which.value].margins.forEach((kind, j) => kind.forEach((margin) => lines.line(margin.map((m, k) => [data.steps[k], m]), `thin ${looks[j]}`)));
      level(lines, along, 0, 'zero');
      draw();
    }
    function draw() {
      const k = step.get(), text = data.texts[which.value];
      cursor.clear(); dots.clear();
      upright(cursor, along, data.steps[k], 'cursor');
      upright(dots, strip, 0, 'zero');
      // Spread by the golden ratio, so that equal margins are told apart and stay where they are.
      text.margins.forEach((kind, j) => kind.forEach((margin, m) => dots.dot(margin[k], j + 0.7 * ((m * 0.618) % 1) - 0.35, 2.5, looks[j])));
      const now = text.margins.flat().map((margin) => margin[k]), positive = now.filter((margin) => margin > 0).length;
      status.textContent = `Step ${data.steps[k].toLocaleString('en')}: ${positive} of ${now.length} margins are positive; smallest ${say(Math.min(...now))}.`;
    }
    change();
  }

  function paths(data, controls, panels, status) {
    const { radii } = data, titles = { W: 'W', KQ: '(K, Q)' };
    const which = choice(controls, 'Path of', data.paths.map((path) => titles[path.name]), () => change());
    const radius = slider(controls, 'Radius R', radii.length - 1, 0, () => draw(), (k) => say(radii[k]));
    const all = data.paths.flatMap((path) => Object.values(path.distance).flat(2)), ends = [Math.min(...all) / 1.3, 1.3 * Math.max(...all)];
    const along = chart(panels, 'Distance against the radius', logarithmic('radius R', [radii[0], radii.at(-1)]), logarithmic('distance', ends));
    const both = chart(panels, 'Every seed at this radius', logarithmic('distance from the Frobenius solution', ends), logarithmic('from the nuclear solution', ends));
    const [lines, cursor, dots] = [along.layer(), along.layer(), both.layer()], norms = ['frobenius', 'nuclear'];
    key(panels, [['frobenius', 'from the Frobenius solution'], ['nuclear', 'from the nuclear solution'], ['third', 'a seed']]);
    const geometric = (seeds, k) => 10 ** mean(seeds.map((seed) => Math.log10(seed[k])));
    function change() {
      const path = data.paths[which.value];
      lines.clear();
      norms.forEach((norm) => path.distance[norm].forEach((seed) => lines.line(seed.map((far, k) => [radii[k], far]), `thin ${norm}`)));
      norms.forEach((norm) => lines.line(radii.map((R, k) => [R, geometric(path.distance[norm], k)]), norm));
      draw();
    }
    function draw() {
      const path = data.paths[which.value], k = radius.get();
      cursor.clear(); dots.clear();
      upright(cursor, along, radii[k], 'cursor');
      dots.line(ends.map((end) => [end, end]), 'zero');
      path.distance.frobenius.forEach((seed, m) => dots.dot(seed[k], path.distance.nuclear[m][k], 3, 'third'));
      const [near, far] = norms.map((norm) => say(geometric(path.distance[norm], k)));
      const shares = [path.selected[k], path.apart[k]].map((share) => `${Math.round(100 * share)} %`);
      status.textContent = `R = ${say(radii[k])}: mean distance ${near} (Frobenius) and ${far} (nuclear); ${shares[0]} of the seeds select ` +
        `the optimal tokens, ${shares[1]} have two minima.`;
    }
    change();
  }

  const PICTURES = { trajectories, trap, ranks, atlas, margins, paths };
  document.querySelectorAll('.picture').forEach((root) => {
    const controls = make(root, 'div', { class: 'controls', role: 'group', 'aria-label': 'Controls' });
    const status = make(root, 'p', { role: 'status' }), panels = make(root, 'div', { class: 'panels' });
    PICTURES[root.dataset.kind](JSON.parse(root.querySelector('script').textContent), controls, panels, status, root);
  });
}());
