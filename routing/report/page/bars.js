/* SPDX-License-Identifier: Apache-2.0
 * bars.js -- bars by rank, NIC or host, one or two plans on one scale, with bounds as lines; and
 * the split of bytes by how they travel. SVG, so that print and papers get lines, not pixels. */

/* spec: {title, caption, unit, names: label of bar i, ranks: plural noun, plans: [{name, values, style}],
 *        bounds: [{value, text}], edges: [[index, text]], text: value -> string} */
function barChart(spec, view) {
	const box = make('figure', {class: 'chart'}), draw = make('div', {tabindex: '0', role: 'img'});
	box.append(make('div', {class: 'title'}, make('h3', {}, spec.title),
		make('button', {type: 'button', on: {click: () => saveSvg(draw.firstChild, spec.title)}}, 'Save SVG')),
	make('p', {class: 'caption'}, spec.caption));
	const keys = make('p', {class: 'keys'});
	for (const plan of spec.plans) keys.append(make('span', {class: 'key ' + plan.style}, plan.name));
	for (const bound of spec.bounds) keys.append(make('span', {class: 'key bound'}, bound.text + ' ' + spec.text(bound.value)));
	box.append(keys, draw);
	const count = spec.plans[0].values.length;
	let bins, at = -1, frame, mark;

	/* Bars thinner than a pixel would lie: neighbours share one, which shows the largest of them. */
	function fold(room) {
		const each = Math.ceil(count / Math.max(1, Math.floor(room / 2)));
		const order = spec.plans[0].values.map((_, i) => i);
		if (view.order === 'largest') order.sort((a, b) => spec.plans[0].values[b] - spec.plans[0].values[a] || a - b);
		bins = [];
		for (let i = 0; i < count; i += each) bins.push(order.slice(i, i + each));
		return each;
	}
	function render() {
		const width = roomOf(draw), height = 230;
		const left = 76, right = 14, top = 20, bottom = 42, w = width - left - right, h = height - top - bottom;
		const each = fold(w), largest = (plan, bin) => bin.reduce((m, i) => Math.max(m, plan.values[i]), 0);
		const relative = view.scale === 'bound' && spec.bounds.length > 0, base = relative ? spec.bounds[0].value : 0;
		const value = (v) => relative ? (base ? (v / base - 1) * 100 : 0) : v;
		const shown = spec.plans.map((plan) => bins.map((bin) => value(largest(plan, bin))));
		const all = shown.flat().concat(spec.bounds.map((b) => value(b.value)), 0);
		let low = all.reduce((m, v) => Math.min(m, v), 0), high = all.reduce((m, v) => Math.max(m, v), 0);
		if (high === low) high = low + 1;
		const spare = (high - low) * 0.06;
		high += spare;
		if (low < 0) low -= spare;
		const y = (v) => top + (high - v) / (high - low) * h, slot = w / bins.length;
		const svg = makeSvg('svg', {viewBox: '0 0 ' + width + ' ' + height, width, height});
		frame = {left, top, w, h, slot, width};
		for (const tick of niceTicks(low, high, 5)) {
			if (spec.whole && !relative && tick % 1) continue;
			svg.append(makeSvg('path', {class: 'grid', d: 'M' + left + ' ' + y(tick) + 'h' + w}));
			svg.append(makeSvg('text', {x: left - 8, y: y(tick) + 4, 'text-anchor': 'end'},
				relative ? (tick > 0 ? '+' : '') + +tick.toPrecision(4) + ' %' : spec.text(tick)));
		}
		/* where there is no room for pairs, the second plan is a line over the first one's bars */
		const pairs = slot >= 7 ? spec.plans.length : 1;
		const gap = slot > 6 ? Math.min(slot * 0.22, 14) : slot > 3 ? 1 : 0, wide = Math.min((slot - gap) / pairs, 60);
		spec.plans.forEach((plan, p) => {
			let d = '';
			if (p >= pairs) {
				shown[p].forEach((v, i) => { d += (i ? 'V' : 'M' + left + ' ') + y(v).toFixed(2) + 'H' + (left + (i + 1) * slot).toFixed(2); });
				svg.append(makeSvg('path', {class: 'line-' + plan.style, d}));
				return;
			}
			shown[p].forEach((v, i) => {
				const x = left + i * slot + (slot - wide * pairs) / 2 + p * wide, y0 = y(0), y1 = y(v);
				if (y0 !== y1) d += 'M' + x.toFixed(2) + ' ' + y0.toFixed(2) + 'V' + y1.toFixed(2) + 'h' + wide.toFixed(2) + 'V' + y0.toFixed(2) + 'z';
			});
			svg.append(makeSvg('path', {class: 'bar-' + plan.style, d}));
		});
		svg.append(makeSvg('path', {class: 'axis', d: 'M' + left + ' ' + y(0) + 'h' + w}));
		if (view.order === 'rank' && each === 1) drawEdges(svg, slot);
		for (const bound of spec.bounds)
			svg.append(makeSvg('path', {class: 'bound-line', d: 'M' + left + ' ' + y(value(bound.value)) + 'h' + w}));
		let step = 1;
		while (step < bins.length && step * slot < spec.tickRoom) step *= 2;
		if (view.order === 'rank')
			for (let i = 0; i < bins.length; i += step)
				svg.append(makeSvg('text', {x: left + (i + .5) * slot, y: top + h + 16, 'text-anchor': 'middle'}, spec.tick(bins[i][0])));
		svg.append(makeSvg('text', {class: 'strong', x: left + w / 2, y: height - 6, 'text-anchor': 'middle'},
			spec.ranks + (view.order === 'largest' ? ', largest first' : '') + (each > 1 ? '; a bar is the largest of ' + each : '')));
		mark = makeSvg('rect', {class: 'pointed', x: 0, y: top, width: Math.max(slot, 1), height: h, visibility: 'hidden'});
		svg.append(mark);
		draw.replaceChildren(svg);
		draw.setAttribute('aria-label', spec.title + ': ' + spec.plans.map((plan) => plan.name + ' from ' +
			spec.text(plan.values.reduce((m, v) => Math.min(m, v), Infinity)) + ' to ' +
			spec.text(plan.values.reduce((m, v) => Math.max(m, v), 0))).join(', ') + '. Arrow keys move from bar to bar.');
	}
	function drawEdges(svg, slot) {
		const room = spec.edges.length > 1 ? frame.w / spec.edges.length : 0;
		spec.edges.forEach(([index, text], i) => {
			const x = frame.left + index * slot;
			if (i && room > 6) svg.append(makeSvg('path', {class: 'group', d: 'M' + x + ' ' + (frame.top - 6) + 'V' + (frame.top + frame.h)}));
			if (room > 62) svg.append(makeSvg('text', {x: x + 3, y: frame.top - 6}, text));
		});
	}
	function point(i, x, y) {
		const area = draw.getBoundingClientRect(), zoom = area.width / frame.width;
		at = Math.min(Math.max(i, 0), bins.length - 1);
		mark.setAttribute('x', frame.left + at * frame.slot);
		mark.setAttribute('visibility', 'visible');
		const bin = bins[at], lines = [bin.length === 1 ? spec.names(bin[0]) : spec.ranks + ' ' + rangesText([...bin].sort((a, b) => a - b)) + ', the largest'];
		for (const plan of spec.plans) {
			const v = bin.reduce((m, k) => Math.max(m, plan.values[k]), 0), bound = spec.bounds[0];
			lines.push(plan.name + ': ' + spec.text(v) + (bound && bound.value ? ' (' + ((v / bound.value - 1) * 100).toFixed(2) + ' % from the line)' : ''));
		}
		showTip(lines.join('\n'), x === undefined ? area.left + (frame.left + (at + 1) * frame.slot) * zoom : x, y === undefined ? area.top + frame.top + 30 : y);
		draw.setAttribute('aria-description', lines.join(', '));
	}
	function leave() { hideTip(); at = -1; mark.setAttribute('visibility', 'hidden'); }
	draw.addEventListener('pointermove', (event) => {
		const area = draw.getBoundingClientRect(), zoom = area.width / frame.width;
		const x = (event.clientX - area.left) / zoom - frame.left;
		if (x < 0 || x >= frame.w) leave();
		else point(Math.floor(x / frame.slot), event.clientX, event.clientY);
	});
	draw.addEventListener('pointerleave', leave);
	draw.addEventListener('blur', leave);
	draw.addEventListener('keydown', (event) => {
		if (event.key === 'ArrowRight') point(at + 1);
		else if (event.key === 'ArrowLeft') point(at < 0 ? 0 : at - 1);
		else if (event.key === 'Home') point(0);
		else if (event.key === 'End') point(bins.length - 1);
		else if (event.key === 'Escape') leave();
		else return;
		event.preventDefault();
	});
	return {box, render};
}

/* An SVG that stands alone: what the style sheet says is written into it. */
function saveSvg(svg, title) {
	const copy = svg.cloneNode(true), from = [svg, ...svg.querySelectorAll('*')], to = [copy, ...copy.querySelectorAll('*')];
	from.forEach((node, i) => {
		const style = getComputedStyle(node);
		for (const name of ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'font-size', 'font-family', 'opacity', 'paint-order'])
			to[i].setAttribute(name, style.getPropertyValue(name));
		to[i].removeAttribute('class');
	});
	copy.setAttribute('xmlns', SVG);
	save('weft-' + title.toLowerCase().replace(/[^a-z0-9]+/g, '-') + '.svg', new Blob([new XMLSerializer().serializeToString(copy)], {type: 'image/svg+xml'}));
}

function edgesOf(of, word) {
	const out = [];
	of.forEach((key, i) => { if (!i || of[i - 1] !== key) out.push([i, word + ' ' + key]); });
	return out.length > 1 && out.length < of.length ? out : [];
}
const same = (a, b) => a.every((v, i) => v === b[i]);

function loadCharts(plan) {
	const view = {order: 'rank', scale: 'zero'}, other = plan.other;
	const plans = (key) => !other ? [{name: plan.own.name, values: plan.own[key], style: 'own'}]
		: [{name: plan.own.name, values: plan.own[key], style: 'own'}, {name: other.name, values: other[key], style: 'other'}];
	const host = (role, r) => plan.topology ? ', host ' + plan.topology.hosts[plan.topology[role].host[r]] : '';
	const trainer = (r) => 'trainer ' + r + ' (stage ' + plan.stage[r] + host('trainer', r) + ')';
	const rank = (r) => 'inference rank ' + r + ' (engine ' + plan.engineOf[r] + ', rank ' + plan.engineRank[r] + host('inference', r) + ')';
	const bound = {value: plan.own.bound, text: 'least possible largest load'};
	const common = {tickRoom: 34, tick: String};
	const specs = [{...common, title: 'Bytes by trainer', ranks: 'trainers', names: trainer, plans: plans('trainer'), bounds: [bound],
		edges: edgesOf(plan.stage, 'stage'), text: bytesText,
		caption: 'What each trainer sends in one update. No plan can keep every bar below the line.'}];
	const equal = !other || same(plan.own.inference, other.inference);
	const shown = equal ? [{name: other ? 'every policy' : plan.own.name, values: plan.own.inference, style: 'own'}] : plans('inference');
	specs.push({...common, title: 'Bytes by inference rank', ranks: 'inference ranks', names: rank, plans: shown, bounds: [bound],
		edges: edgesOf(plan.engineOf, 'engine'), text: bytesText,
		caption: 'What each inference rank receives. The layout fixes it. Where bars stand above the line of the trainers\u2019 bound, receivers set the pace; below it, senders do.'});
	specs.push({...common, title: 'Sessions by trainer', ranks: 'trainers', names: trainer, plans: plans('sessions'), bounds: [],
		edges: edgesOf(plan.stage, 'stage'), text: (v) => grouped(v), whole: true, caption: 'How many inference ranks each trainer writes to.'});
	if (plan.topology) specs.push(...topologyCharts(plan, common));
	if (plan.measured) specs.unshift(...measuredCharts(plan, {...common, trainer, rank}));
	const charts = specs.map((spec) => barChart(spec, view)), area = byId('load-charts');
	for (const chart of charts) area.append(chart.box);
	const render = () => charts.forEach((chart) => chart.render());
	byId('load-controls').append(
		choose('order', [['rank', 'by rank'], ['largest', 'largest first']], 'rank', (value) => { view.order = value; render(); }),
		choose('scale', [['zero', 'bytes, from zero'], ['bound', 'percent from the line']], 'zero', (value) => { view.scale = value; render(); }));
	if (!plan.topology)
		area.append(make('p', {class: 'caption'}, 'No topology was given: each rank has a host and a NIC of its own, so bars by NIC and by host would be those above.'));
	render();
	return {redraw: render, view, specs};
}

/* One bar a plan, cut by how the bytes travel. */
function howChart(plan) {
	const box = byId('how-chart'), ways = ['direct', 'mapped', 'replica', 'landed'];
	const words = ['direct: sent from where they are, no copy', 'mapped: packed straight into the target, one copy', 'replica: packed, then written', 'landed: put in place by the target'];
	const plans = plan.other ? [plan.own, plan.other] : [plan.own];
	const keys = make('p', {class: 'keys'});
	ways.forEach((way, i) => { if (i < 3 || plans.some((one) => one.how[i])) keys.append(make('span', {class: 'key ' + way}, words[i])); });
	function render() {
		const width = roomOf(box), left = 150, w = width - left - 4;
		const svg = makeSvg('svg', {viewBox: '0 0 ' + width + ' ' + (plans.length * 40 + 4), width, height: plans.length * 40 + 4, role: 'img'});
		const said = [];
		plans.forEach((one, p) => {
			const total = one.how.reduce((a, b) => a + b, 0) || 1;
			let x = left;
			const name = one.name.length > 18 ? one.name.slice(0, 17) + '\u2026' : one.name;
			svg.append(makeSvg('text', {class: 'strong', x: left - 10, y: p * 40 + 21, 'text-anchor': 'end'}, name));
			one.how.forEach((bytes, i) => {
				const size = bytes / total * w, text = ways[i] + ' ' + bytesText(bytes) + ', ' + (bytes / total * 100).toFixed(1) + ' %';
				if (!bytes) return;
				said.push(one.name + ' ' + text);
				const bar = makeSvg('rect', {class: 'bar-' + ways[i], x, y: p * 40 + 3, width: Math.max(size, 1), height: 28});
				bar.append(makeSvg('title', {}, text));
				svg.append(bar);
				const fits = [text, ways[i] + ' ' + (bytes / total * 100).toFixed(0) + ' %'].find((t) => size > t.length * 7.2 + 10);
				if (fits) svg.append(makeSvg('text', {x: x + 8, y: p * 40 + 21, class: 'on-' + ways[i]}, fits));
				x += size;
			});
		});
		svg.setAttribute('aria-label', said.join('; '));
		box.replaceChildren(keys, svg);
	}
	render();
	return {redraw: render};
}
