/* The pictures that move: each reads the JSON in its page. Without this script a page shows its figure and table. */
(function () {
  'use strict';
  const SVG = 'http://www.w3.org/2000/svg', NORMS = ['frobenius', 'nuclear'];
  const BY = { value: (value) => value, logarithm: Math.log10, asinh: Math.asinh };
  const isCalm = window.matchMedia('(prefers-reduced-motion: reduce)').matches;
  const range = (count) => Array.from({ length: count }, (_, k) => k);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const whole = (value) => value.toLocaleString('en');
  const letters = (weights) => (weights === 'W' ? 'W' : '(K, Q)');
  const say = (value) => (value !== 0 && (Math.abs(value) < 1e-2 || Math.abs(value) >= 1e5)
    ? value.toExponential(1) : String(Number(value.toPrecision(3))));

  function make(parent, name, attributes, text) {
    const isDrawn = name === 'svg' || parent.namespaceURI === SVG;
    const node = isDrawn ? document.createElementNS(SVG, name) : document.createElement(name);
    Object.entries(attributes || {}).forEach(([key, value]) => node.setAttribute(key, value));
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  }

  /* A panel with axes; what is drawn stands in layers, so that what stays need not be drawn again. */
  function chart(parent, { title, x, y, height }) {
    const [left, top, width, high] = [50, 28, 300, height - 72], bottom = top + high;
    const drawing = make(parent, 'svg', { viewBox: `0 0 360 ${height}`, role: 'img', 'aria-label': title });
    const heading = make(drawing, 'text', { x: 6, y: 16, class: 'heading' }, title);
    function scale(axis, start, length) {
      const [by, from, to] = [BY[axis.by], ...axis.ends.map(BY[axis.by])];
      return (value) => start + length * (by(value) - from) / (to - from);
    }
    const across = scale(x, left, width), up = scale(y, bottom, -high);
    const write = (text, at, anchor) => make(drawing, 'text', { ...at, 'text-anchor': anchor }, text);
    x.ticks.forEach((tick, k) => {
      make(drawing, 'line', { x1: across(tick), x2: across(tick), y1: top, y2: bottom, class: 'grid' });
      write(x.names[k], { x: across(tick), y: bottom + 15 }, 'middle');
    });
    y.ticks.forEach((tick, k) => {
      make(drawing, 'line', { x1: left, x2: left + width, y1: up(tick), y2: up(tick), class: 'grid' });
      write(y.names[k], { x: left - 5, y: up(tick) + 4 }, 'end');
    });
    write(x.label, { x: left + width / 2, y: bottom + 34 }, 'middle');
    write(y.label, { transform: `translate(12 ${top + high / 2}) rotate(-90)` }, 'middle');
    // A drawing in the drawing cuts off what lies outside of the axes.
    const viewBox = `${left} ${top} ${width} ${high}`;
    const inside = make(drawing, 'svg', { x: left, y: top, width, height: high, viewBox });
    const place = ([a, b]) => `${across(a).toFixed(1)} ${up(b).toFixed(1)}`;
    function layer() {
      const group = make(inside, 'g');
      const line = (points, look) => make(group, 'path', { d: `M${points.map(place).join('L')}`, class: `line ${look}` });
      return {
        line,
        clear: () => group.replaceChildren(),
        upright: (value, look) => line(y.ends.map((end) => [value, end]), look),
        level: (value, look) => line(x.ends.map((end) => [end, value]), look),
        dot: (a, b, r, look) => make(group, 'circle', { cx: across(a), cy: up(b), r, class: look }),
        bar: (a, thick, b, look) => make(group, 'rect', {
          x: across(a) - thick / 2, width: thick, y: up(b), height: Math.max(bottom - up(b), 0), class: look,
        }),
        // The unit square around a point of an axis that runs downwards.
        cell: (a, b, share, look) => make(group, 'rect', {
          x: across(a - 0.5), width: across(a + 0.5) - across(a - 0.5), class: look,
          y: up(b - 0.5), height: up(b + 0.5) - up(b - 0.5), 'fill-opacity': share,
        }),
        letter: (a, b, text) => make(group, 'text', { x: across(a), y: up(b) + 4, 'text-anchor': 'middle' }, text),
      };
    }
    /* Where a click on linear axes is, as shares of them. */
    function at(event) {
      const there = new DOMPoint(event.clientX, event.clientY).matrixTransform(drawing.getScreenCTM().inverse());
      return [(there.x - left) / width, (bottom - there.y) / high];
    }
    function entitle(text) {
      heading.textContent = text;
      drawing.setAttribute('aria-label', text);
    }
    return { drawing, layer, at, entitle, x, y };
  }

  function choice(parent, label, options, act) {
    const select = make(make(parent, 'label', {}, `${label} `), 'select');
    options.forEach((option, k) => make(select, 'option', { value: k }, option));
    select.addEventListener('change', act);
    return select;
  }

  function slider(parent, label, last, start, act, told) {
    const box = make(parent, 'label', {}, `${label} `);
    const input = make(box, 'input', { type: 'range', min: 0, max: last, value: start });
    const output = make(box, 'output'), get = () => Number(input.value);
    function show() {
      output.textContent = told(get());
      input.setAttribute('aria-valuetext', output.textContent);
    }
    input.addEventListener('input', () => { show(); act(); });
    show();
    return { input, get, set: (value) => { input.value = value; show(); act(); } };
  }

  /* A button that moves a slider; none for readers who asked for less motion. */
  function player(parent, moved, every) {
    if (isCalm) return;
    const button = make(parent, 'button', { type: 'button' }, 'Play');
    const isLast = () => moved.get() >= Number(moved.input.max);
    let timer = 0;
    function stop() {
      window.clearInterval(timer);
      timer = 0;
      button.textContent = 'Play';
    }
    function start() {
      if (isLast()) moved.set(0);
      button.textContent = 'Pause';
      timer = window.setInterval(() => { moved.set(moved.get() + 1); if (isLast()) stop(); }, every);
    }
    button.addEventListener('click', () => (timer ? stop() : start()));
  }

  function trajectories(data, controls, [plane, bars, far], status) {
    const names = Object.keys(data.steps), looks = ['first', 'second'], reach = plane.x.ends[1];
    const rule = (name) => (name.endsWith('exact') ? 'exact gradient' : 'published rule');
    const runs = names.map((name) => `${letters(name[0])}, ${rule(name)}`);
    const run = choice(controls, 'Training', runs, () => change());
    const seed = choice(controls, 'Seed', data.seeds.map((one) => `${one.seed} (${one.place})`), () => change());
    const steps = () => data.steps[names[run.value]], own = () => data.seeds[seed.value].runs[names[run.value]];
    const last = steps().length - 1, told = (k) => whole(steps()[k]);
    const step = slider(controls, 'Step', last, Math.floor(last / 2), () => draw(), told);
    player(controls, step, 80);
    const [stays, moves, heights, curves, cursor] = [plane, plane, bars, far, far].map((panel) => panel.layer());

    function change() {
      const norm = names[run.value].startsWith('W') ? 'frobenius' : 'nuclear';
      step.input.max = steps().length - 1;
      stays.clear();
      curves.clear();
      data.seeds[seed.value].X.forEach((input, i) => {
        const ray = own().ray[norm][i], long = 2 * reach / Math.hypot(...ray);
        stays.line([[0, 0], ray.map((value) => value * long)], 'ray');
        input.forEach((token, t) => {
          const isChosen = t === own().selected[i];
          stays.dot(...token, isChosen ? 8 : 5, `token ${looks[i]}${isChosen ? ' chosen' : ''}`);
        });
      });
      NORMS.forEach((one) => curves.line(own().off[one].map((off, j) => [steps()[j], Math.max(off, 1e-9)]), one));
      plane.entitle(`W z and the rays of the ${norm === 'nuclear' ? 'nuclear' : 'Frobenius'} solution`);
      step.set(step.get());
    }
    function draw() {
      const k = step.get(), { path, off, selected } = own();
      [moves, heights, cursor].forEach((layer) => layer.clear());
      const chosen = data.seeds[seed.value].X.map((input, i) => {
        const size = 0.85 * reach / Math.max(...path.map((points) => Math.hypot(...points[i])), 1e-300);
        const scaled = path.slice(0, k + 1).map((points) => points[i].map((value) => value * size));
        moves.line([[0, 0], ...scaled], looks[i]);
        moves.dot(...scaled[k], 4, looks[i]);
        const logits = input.map(([p, q]) => p * path[k][i][0] + q * path[k][i][1]);
        const weights = logits.map((logit) => Math.exp(logit - Math.max(...logits)));
        const sum = weights.length * mean(weights), thick = 240 / (2 * weights.length + 2);
        weights.forEach((weight, t) => heights.bar(bars.x.ticks[i * weights.length + t], thick, weight / sum, looks[i]));
        return say(weights[selected[i]] / sum);
      });
      cursor.upright(steps()[k], 'cursor');
      status.textContent = `Step ${told(k)}: attention on the selected tokens ${chosen.join(' and ')}; ` +
        `1 - cos is ${say(off.frobenius[k])} (Frobenius) and ${say(off.nuclear[k])} (nuclear).`;
    }
    change();
  }

  /* Steepest descent on the recorded risk: its slopes are differences on the grid, interpolated between its points. */
  function descend({ first, second }, risk, start) {
    const last = [first.length - 1, second.length - 1], gap = [first[1] - first[0], second[1] - second[0]];
    const path = [start];
    function slope(i, j) {
      const [a, b] = [Math.max(i - 1, 0), Math.min(i + 1, last[0])];
      const [c, d] = [Math.max(j - 1, 0), Math.min(j + 1, last[1])];
      return [(risk[j][b] - risk[j][a]) / ((b - a) * gap[0]), (risk[d][i] - risk[c][i]) / ((d - c) * gap[1])];
    }
    while (path.length < 3000) {
      const [x, y] = path.at(-1), a = (x - first[0]) / gap[0], b = (y - second[0]) / gap[1], before = path.at(-40);
      if (a < 0 || b < 0 || a > last[0] || b > last[1]) return { path, isOut: true };
      const i = Math.min(Math.floor(a), last[0] - 1), j = Math.min(Math.floor(b), last[1] - 1), s = a - i, t = b - j;
      const [p, q, r, u] = [slope(i, j), slope(i + 1, j), slope(i, j + 1), slope(i + 1, j + 1)];
      const g = [0, 1].map((n) => (1 - t) * ((1 - s) * p[n] + s * q[n]) + t * ((1 - s) * r[n] + s * u[n]));
      const length = Math.hypot(...g);
      // At rest: no slope, or to and fro in one place.
      if (length < 1e-6 || (before && Math.hypot(x - before[0], y - before[1]) < 0.15)) break;
      path.push([x - 0.03 * g[0] / length, y - 0.03 * g[1] / length]);
    }
    return { path, isOut: false };
  }

  function trap(data, controls, [panel], status) {
    const { first, second } = data, told = (point) => `(${point.map(say).join(', ')})`;
    const which = choice(controls, 'Instance', data.landscapes.map((one) => one.name), () => change());
    const start = [['first', first, 18], ['second', second, 42]].map(([name, values, at]) => (
      slider(controls, `Start, ${name} coordinate`, values.length - 1, at, () => draw(), (k) => say(values[k]))));
    const back = panel.layer(), front = panel.layer();
    panel.drawing.addEventListener('click', (event) => {
      panel.at(event).forEach((share, k) => start[k].set(Math.round(share * Number(start[k].input.max))));
    });

    function change() {
      const { contours, solution, minima, saddles } = data.landscapes[which.value];
      back.clear();
      contours.forEach((points) => back.line(points, 'contour'));
      back.line([[0, 0], solution.map((value) => 20 * value)], 'ray');
      minima.forEach((place) => back.dot(place, 0, 6, 'minimum'));
      saddles.forEach((place) => back.dot(place, 0, 6, 'saddle'));
      draw();
    }
    function draw() {
      const { risk, minima } = data.landscapes[which.value], from = [first[start[0].get()], second[start[1].get()]];
      const { path, isOut } = descend(data, risk, from), end = path.at(-1);
      const isTrapped = !isOut && minima.some((place) => Math.hypot(end[0] - place, end[1]) < 0.6);
      front.clear();
      front.line(path, 'second');
      front.dot(...from, 5, 'second');
      const elsewhere = `${isOut ? 'leaves the panel' : 'comes to rest'} near ${told(end)}`;
      status.textContent = `From ${told(from)} steepest descent ${isTrapped ? 'is trapped at the local minimum' : elsewhere}.`;
    }
    change();
  }

  function ranks(data, controls, [values, counts], status) {
    const tolerances = range(56).map((k) => -12 + k / 5), power = (k) => `1e${tolerances[k].toFixed(1)}`;
    const kinds = [['certified', 'frobenius', -0.15], ['inexact', 'nuclear', 0.15]];
    const which = choice(controls, 'Problems', data.settings.map((one) => one.name), () => change());
    const slide = slider(controls, 'Tolerance', tolerances.length - 1, 25, () => draw(), power);
    const [dots, lines, cut, cursor] = [values, counts, values, counts].map((panel) => panel.layer());
    const rank = (problems, least) => mean(problems.map((problem) => problem.filter((value) => value > least).length));

    function change() {
      const one = data.settings[which.value];
      [dots, lines].forEach((layer) => layer.clear());
      kinds.forEach(([kind, look, aside]) => {
        one[kind].forEach((problem) => problem.forEach((value, k) => dots.dot(k + 1 + aside, value, 2, look)));
        lines.line(tolerances.map((least) => [least, rank(one[kind], least)]), look);
      });
      dots.level(one.published, 'published');
      lines.upright(one.published, 'published');
      draw();
    }
    function draw() {
      const one = data.settings[which.value], least = tolerances[slide.get()];
      [cut, cursor].forEach((layer) => layer.clear());
      cut.level(least, 'cursor');
      cursor.upright(least, 'cursor');
      const [certified, inexact] = kinds.map(([kind]) => rank(one[kind], least).toFixed(2));
      status.textContent = `Mean nuclear rank of ${one.certified.length} problems, singular values above ` +
        `${power(slide.get())} of the largest: ${certified} (certified), ${inexact} (${one.solver}).`;
    }
    change();
  }

  function atlas(data, controls, [panel], status, root) {
    const layer = panel.layer(), cells = [...root.querySelectorAll('td[data-norm]')], wide = data.norms.length;
    function show(cell) {
      const row = data.rows[cell.dataset.row], chosen = Number(cell.dataset.norm);
      const line = (j, look) => layer.line(row.steps.map((k, i) => [k, row.ratio[j][i]]), look);
      layer.clear();
      range(wide).forEach((j) => line(j, 'contour'));
      line(chosen, 'frobenius');
      cells.forEach((one) => { one.tabIndex = one === cell ? 0 : -1; one.classList.toggle('shown', one === cell); });
      panel.entitle(`${letters(row.weights)}: ${row.name}`);
      const end = `${say(row.ratio[chosen].at(-1))} after ${whole(row.steps.at(-1))} steps`;
      status.textContent = `${data.norms[chosen]}: mean margin ratio ${end}, ${row.seeds} seeds. ` +
        `Predicted: ${row.predicted || 'none of these norms'}.`;
    }
    cells.forEach((cell, k) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -wide, ArrowDown: wide };
      ['mouseenter', 'focus'].forEach((happens) => cell.addEventListener(happens, () => show(cell)));
      cell.addEventListener('click', () => cell.focus());
      cell.addEventListener('keydown', (event) => {
        if (!(event.key in by)) return;
        // Outside of the table arrows turn the site's pages.
        event.preventDefault(); event.stopPropagation();
        cells[k + by[event.key]]?.focus();
      });
    });
    show(cells[0]);
  }

  function margins(data, controls, [along, strip], status) {
    const { steps } = data, last = steps.length - 1, looks = ['third', 'first', 'second'];
    const said = (text) => `seed ${text.seed}, ${text.feasible ? 'no conflict' : 'with a conflict'}`;
    const which = choice(controls, 'Text', data.texts.map(said), () => change());
    const step = slider(controls, 'Step', last, Math.floor(last / 2), () => draw(), (k) => whole(steps[k]));
    player(controls, step, 900);
    const [lines, cursor, dots] = [along, along, strip].map((panel) => panel.layer());
    const each = (act) => data.texts[which.value].margins.forEach((kind, j) => kind.forEach((one, m) => act(one, j, m)));

    function change() {
      lines.clear();
      each((margin, j) => lines.line(margin.map((value, k) => [steps[k], value]), `thin ${looks[j]}`));
      lines.level(0, 'zero');
      draw();
    }
    function draw() {
      const k = step.get(), now = data.texts[which.value].margins.flat().map((margin) => margin[k]);
      [cursor, dots].forEach((layer) => layer.clear());
      cursor.upright(steps[k], 'cursor');
      dots.upright(0, 'zero');
      // Set apart by the golden ratio, so that equal margins are told from each other and each stays at its height.
      each((margin, j, m) => dots.dot(margin[k], j + 0.7 * ((m * 0.618) % 1) - 0.35, 2.5, looks[j]));
      const positive = now.filter((margin) => margin > 0).length;
      status.textContent = `Step ${whole(steps[k])}: ${positive} of ${now.length} margins are positive; ` +
        `the smallest is ${say(Math.min(...now))}.`;
    }
    change();
  }

  function paths(data, controls, [along, both], status) {
    const { radii } = data, last = radii.length - 1;
    const which = choice(controls, 'Path of', data.paths.map((path) => letters(path.name)), () => change());
    const radius = slider(controls, 'Radius R', last, Math.floor(last / 2), () => draw(), (k) => say(radii[k]));
    const [lines, cursor, dots] = [along, along, both].map((panel) => panel.layer());
    const geometric = (seeds, k) => 10 ** mean(seeds.map((seed) => Math.log10(seed[k])));
    const share = (part) => `${Math.round(100 * part)} %`;

    function change() {
      const { distance } = data.paths[which.value], line = (far, look) => lines.line(radii.map((R, k) => [R, far(k)]), look);
      lines.clear();
      NORMS.forEach((norm) => distance[norm].forEach((seed) => line((k) => seed[k], `thin ${norm}`)));
      NORMS.forEach((norm) => line((k) => geometric(distance[norm], k), norm));
      draw();
    }
    function draw() {
      const { distance, selected, apart } = data.paths[which.value], k = radius.get();
      [cursor, dots].forEach((layer) => layer.clear());
      cursor.upright(radii[k], 'cursor');
      dots.line(both.x.ends.map((end) => [end, end]), 'zero');
      distance.frobenius.forEach((seed, m) => dots.dot(seed[k], distance.nuclear[m][k], 3, 'third'));
      const [frobenius, nuclear] = NORMS.map((norm) => say(geometric(distance[norm], k)));
      status.textContent = `R = ${say(radii[k])}: mean distance ${frobenius} (Frobenius) and ${nuclear} (nuclear). ` +
        `${share(selected[k])} of the seeds select the optimal tokens, ${share(apart[k])} have two minima.`;
    }
    change();
  }

  function heads(data, controls, [along, grid], status) {
    const which = choice(controls, 'Head', data.heads.map((one) => one.name), () => change());
    const written = choice(controls, 'Sequence', [...'ABCDEF'].slice(0, data.heads[0].sequences.length), () => draw());
    const own = () => data.heads[which.value], last = data.heads[0].steps.length - 1;
    const step = slider(controls, 'Step', last, Math.floor(last / 2), () => draw(), (k) => whole(own().steps[k]));
    player(controls, step, 900);
    const [lines, cursor, cells] = [along, along, grid].map((panel) => panel.layer());

    function change() {
      const looks = { low: 'contour', high: 'contour', mean: 'second', ratio: 'nuclear' };
      lines.clear();
      lines.level(own().first, 'zero');
      Object.entries(looks).forEach(([name, look]) => lines.line(own()[name].map((y, k) => [own().steps[k], y]), look));
      step.set(step.get());
    }
    function draw() {
      const one = own(), k = step.get(), m = written.value, letters = one.sequences[m];
      [cursor, cells].forEach((layer) => layer.clear());
      cursor.upright(one.steps[k], 'cursor');
      const said = one.attention[k][m].map((shares, u) => {
        const against = one.support[k][m][u], most = shares.indexOf(Math.max(...shares));
        [[u, -1], [-1, u]].forEach(([a, b]) => cells.letter(a, b, letters[u]));
        shares.forEach((share, t) => cells.cell(t, u, share, 'shade'));
        one.selected[m][u].forEach((t) => cells.cell(t, u, 0, 'selected'));
        against.forEach((t) => cells.dot(t, u, 5, 'saddle'));
        const rivals = against.length ? `, support vectors ${against.map((t) => letters[t]).join(' ')}` : '';
        return `${letters[u]} reads ${letters[most]} (${say(shares[most])})${rivals}`;
      });
      grid.drawing.setAttribute('aria-label', `Attention of each query: ${said.join('; ')}`);
      status.textContent = `Step ${whole(one.steps[k])}: the margin ratio is ${say(one.ratio[k])}; of untrained matrices ` +
        `90 % have ${say(one.low[k])} to ${say(one.high[k])}. ${one.carrying[k]} of ${one.rows} rows carry the optimum.`;
    }
    change();
  }

  const PICTURES = { trajectories, trap, ranks, atlas, margins, paths, heads };
  document.querySelectorAll('.picture').forEach((root) => {
    const { view, panels } = JSON.parse(root.querySelector('script').textContent);
    const controls = make(root, 'div', { class: 'controls' }), status = make(root, 'p', { role: 'status' });
    const box = make(root, 'div', { class: `panels of-${panels.length}` });
    PICTURES[root.dataset.kind](view, controls, panels.map((panel) => chart(box, panel)), status, root);
    root.append(...root.querySelectorAll('.key, .atlas'));
  });
}());
