/* SPDX-License-Identifier: Apache-2.0
 * heat.js -- the heat map: rows are trainers, columns inference ranks, or groups of them. One pixel
 * a cell is painted off screen and enlarged without smoothing, so its cost does not depend on
 * the window; hover and keys are arithmetic on the grid, no element stands for a cell. */

/* viridis, every sixteenth colour */
const VIRIDIS = ['440154', '48186a', '472d7b', '424086', '3b528b', '33638d', '2c728e', '26828e', '21918c', '1fa088', '28ae80',
	'3fbc73', '5ec962', '84d44b', 'addc30', 'd8e219', 'fde725'];
/* orange: less than beside; purple: more */
const DIVERGING = ['b35806', 'e08214', 'fdb863', 'fee0b6', 'f7f7f7', 'd8daeb', 'b2abd2', '8073ac', '542788'];

function colourOf(scale, x) { /* x in 0..1 */
	const at = Math.min(Math.max(x, 0), 1) * (scale.length - 1), i = Math.min(Math.floor(at), scale.length - 2);
	const part = (k, c) => parseInt(scale[k].slice(c, c + 2), 16);
	return [0, 2, 4].map((c) => Math.round(part(i, c) + (part(i + 1, c) - part(i, c)) * (at - i)));
}

function heatMap(plan, pick) {
	const rowGroups = groupings(plan, 'trainer'), colGroups = groupings(plan, 'inference');
	const canvas = make('canvas', {tabindex: '0', role: 'img', 'aria-describedby': 'heat-detail'});
	const state = {rows: rowGroups[0], cols: colGroups[0], metric: 'bytes', scale: 'log', shown: 'own', at: null};
	let grid, frame, width = 0, height = 0, ratio = 1;

	/* ---- sums by cell ---- */
	function sum(table, hasRoutes) {
		const {rows, cols} = state, n = rows.count * cols.count;
		const bytes = new Float64Array(n), routes = new Float64Array(n);
		for (let i = 0; i < table.count; i++) {
			const cell = rows.index[table.trainer[i]] * cols.count + cols.index[table.inference[i]];
			bytes[cell] += table.bytes[i];
			routes[cell] += hasRoutes ? table.routes[i] : 1;
		}
		return {bytes, routes};
	}
	function compute() {
		const own = sum(plan.routes, false), other = plan.cells ? sum(plan.cells, true) : null;
		let values = state.shown === 'other' ? other[state.metric] : own[state.metric];
		if (state.shown === 'difference') values = values.map((v, i) => v - other[state.metric][i]);
		let high = 0, low = Infinity;
		for (const v of values) if (v) { high = Math.max(high, Math.abs(v)); low = Math.min(low, Math.abs(v)); }
		grid = {own, other, values, high: high || 1, low: low === Infinity ? 1 : low};
		/* narrow ranges look alike on a logarithmic scale that begins at the least value */
		grid.from = state.scale === 'least' && grid.low < grid.high && state.shown !== 'difference' ? grid.low : 0;
		grid.floor = state.scale !== 'log' || state.shown === 'difference' ? 0 : Math.min(grid.low, grid.high / 10);
	}
	function place(v) { /* a value's place on the colour scale */
		if (state.shown === 'difference') {
			if (state.scale !== 'log') return 0.5 + v / grid.high / 2;
			const log = Math.log(Math.abs(v) / grid.low * 9 + 1) / Math.log(grid.high / grid.low * 9 + 1);
			return 0.5 + Math.sign(v) * (v ? log : 0) / 2;
		}
		return grid.floor ? Math.log(v / grid.floor) / Math.log(grid.high / grid.floor) : (v - grid.from) / (grid.high - grid.from);
	}
	const text = (v) => state.metric === 'bytes' ? bytesText(v) : grouped(v);
	const colours = () => state.shown === 'difference' ? DIVERGING : VIRIDIS;

	/* ---- painting ---- */
	function layout() {
		const room = roomOf(byId('heat-map')), {rows, cols} = state;
		const left = 78, right = 92, top = 26, bottom = 44;
		const cellWidth = Math.min(110, (room - left - right) / cols.count);
		const cellHeight = Math.min(44, Math.max(1.6, Math.min(cellWidth, 600 / rows.count)), 600 / rows.count);
		frame = {left, top, cellWidth, cellHeight, w: cellWidth * cols.count, h: Math.max(cellHeight * rows.count, 96)};
		frame.cellHeight = frame.h / rows.count;
		width = Math.round(left + frame.w + right);
		height = Math.round(top + frame.h + bottom);
	}
	function cellImage() {
		const {rows, cols} = state, image = new ImageData(cols.count, rows.count), scale = colours();
		const table = Array.from({length: 256}, (_, i) => colourOf(scale, i / 255));
		for (let i = 0; i < grid.values.length; i++) {
			const v = grid.values[i];
			if (!v && state.shown !== 'difference') continue; /* nothing sent: the page shows through */
			if (!v && !grid.own.bytes[i] && !grid.other.bytes[i]) continue;
			const c = table[Math.round(Math.min(Math.max(place(v), 0), 1) * 255)];
			image.data.set([c[0], c[1], c[2], 255], i * 4);
		}
		const small = make('canvas', {width: cols.count, height: rows.count});
		small.getContext('2d').putImageData(image, 0, 0);
		return small;
	}
	function paint() {
		const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue('--' + name).trim();
		const context = canvas.getContext('2d'), {left, top, w, h, cellWidth, cellHeight} = frame;
		canvas.width = width * ratio;
		canvas.height = height * ratio;
		canvas.style.width = width + 'px';
		context.setTransform(ratio, 0, 0, ratio, 0, 0);
		context.fillStyle = colour('page');
		context.fillRect(0, 0, width, height);
		context.fillStyle = colour('panel');
		context.fillRect(left, top, w, h);
		context.imageSmoothingEnabled = false;
		context.drawImage(cellImage(), left, top, w, h);
		context.font = '12px ' + getComputedStyle(document.body).fontFamily;
		context.fillStyle = colour('soft');
		context.strokeStyle = colour('line');
		if (cellWidth > 9 && cellHeight > 9) {
			context.beginPath();
			for (let c = 1; c < state.cols.count; c++) { context.moveTo(left + c * cellWidth, top); context.lineTo(left + c * cellWidth, top + h); }
			for (let r = 1; r < state.rows.count; r++) { context.moveTo(left, top + r * cellHeight); context.lineTo(left + w, top + r * cellHeight); }
			context.stroke();
		}
		paintAxes(context, colour);
		paintScale(context, colour);
		if (cellWidth >= 62 && cellHeight >= 22) paintNumbers(context);
		context.strokeStyle = colour('soft');
		context.strokeRect(left - .5, top - .5, w + 1, h + 1);
		if (state.at) {
			const x = left + state.at[1] * cellWidth, y = top + state.at[0] * cellHeight;
			context.lineWidth = 3;
			context.strokeStyle = '#000000';
			context.strokeRect(x - 1.5, y - 1.5, Math.max(cellWidth, 2) + 3, Math.max(cellHeight, 2) + 3);
			context.lineWidth = 1.5;
			context.strokeStyle = '#ffffff';
			context.strokeRect(x - 1.5, y - 1.5, Math.max(cellWidth, 2) + 3, Math.max(cellHeight, 2) + 3);
			context.lineWidth = 1;
		}
	}
	function paintNumbers(context) {
		context.textAlign = 'center';
		context.textBaseline = 'middle';
		grid.values.forEach((v, i) => {
			if (!v) return;
			const c = colourOf(colours(), place(v)), bright = 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2] > 130;
			context.fillStyle = bright ? '#000000' : '#ffffff';
			context.fillText(text(v), frame.left + (i % state.cols.count + .5) * frame.cellWidth,
				frame.top + (Math.floor(i / state.cols.count) + .5) * frame.cellHeight);
		});
	}
	/* every k-th label, k of 1, 2, 4, 8 ..: as many as fit */
	const every = (count, size, room) => { let k = 1; while (k < count && k * size < room) k *= 2; return k; };
	const short = (group, g) => /^(trainers|ranks|blocks.*)$/.test(group.name) ? String(group.ranks[g][0])
		: group.label(g).replace(/^(stage|engine|host) /, '');
	function paintAxes(context, colour) {
		const {left, top, w, h, cellWidth, cellHeight} = frame, {rows, cols} = state;
		const clip = (label, n) => label.length > n ? label.slice(0, n - 1) + '\u2026' : label;
		context.fillStyle = colour('soft');
		context.textBaseline = 'middle';
		context.textAlign = 'right';
		let k = every(rows.count, cellHeight, 16);
		for (let r = 0; r < rows.count; r += k) context.fillText(clip(short(rows, r), 8), left - 6, top + (r + .5) * cellHeight);
		context.textAlign = 'center';
		context.textBaseline = 'top';
		k = every(cols.count, cellWidth, cols.name === 'hosts' ? 64 : 30);
		for (let c = 0; c < cols.count; c += k) context.fillText(clip(short(cols, c), 9), left + (c + .5) * cellWidth, top + h + 6);
		context.fillStyle = colour('ink');
		context.fillText(axisTitle('inference', cols), Math.min(left + w / 2, width - 80), top + h + 24);
		context.save();
		context.translate(8, top + h / 2);
		context.rotate(-Math.PI / 2);
		context.fillText(axisTitle('trainer', rows), 0, 0);
		context.restore();
		context.fillStyle = colour('soft');
		edges(rows, plan.stage).forEach(([g], i) => {
			if (!i) return;
			context.globalAlpha = .45;
			context.fillRect(left, top + g * cellHeight - .5, w, 1);
			context.globalAlpha = 1;
		});
		const engines = edges(cols, plan.engineOf), step = every(engines.length, w / engines.length, 76);
		context.textBaseline = 'bottom';
		context.textAlign = 'left';
		engines.forEach(([g, engine], i) => {
			context.globalAlpha = .45;
			if (i && w / engines.length >= 14) context.fillRect(left + g * cellWidth - .5, top, 1, h);
			context.globalAlpha = 1;
			if (i && i % step === 0) context.fillRect(left + g * cellWidth - .5, top - 8, 1, 8);
			if (i % step === 0 && engines.length > 1) context.fillText('engine ' + engine, left + g * cellWidth + 3, top - 4);
		});
	}
	/* where a new stage or engine begins, if groups lie inside them in one run each */
	function edges(group, of) {
		const out = [], seen = new Set();
		for (let g = 0; g < group.count; g++) {
			const key = of[group.ranks[g][0]];
			if (group.ranks[g].some((r) => of[r] !== key)) return [];
			if (out.length && out[out.length - 1][1] === key) continue;
			if (seen.has(key)) return [];
			seen.add(key);
			out.push([g, key]);
		}
		return out.length < group.count ? out : [];
	}
	const axisTitle = (role, group) => {
		const one = role === 'trainer' ? 'trainers' : 'inference ranks';
		return /^(trainers|ranks)$/.test(group.name) ? one : one + ' by ' + group.name.replace(/^(host|stage|engine)s$/, '$1');
	};
	function paintScale(context, colour) {
		const {left, top, w, h} = frame, x = left + w + 18, size = Math.min(h, 220);
		for (let i = 0; i < size; i++) {
			const c = colourOf(colours(), 1 - i / (size - 1));
			context.fillStyle = 'rgb(' + c + ')';
			context.fillRect(x, top + i, 12, 1.5);
		}
		context.strokeStyle = colour('soft');
		context.strokeRect(x - .5, top - .5, 13, size + 1);
		context.fillStyle = colour('soft');
		context.textAlign = 'left';
		context.textBaseline = 'middle';
		let ticks;
		if (state.shown === 'difference') ticks = state.scale === 'log' ? [-grid.high, 0, grid.high] : [-grid.high, -grid.high / 2, 0, grid.high / 2, grid.high];
		else if (grid.floor) ticks = [0, .25, .5, .75, 1].map((f) => grid.floor * (grid.high / grid.floor) ** f);
		else ticks = [0, .25, .5, .75, 1].map((f) => grid.from + f * (grid.high - grid.from));
		if (size < 130 && ticks.length === 5) ticks = [ticks[0], ticks[2], ticks[4]];
		const said = new Set();
		for (const v of ticks) {
			if (said.has(text(v))) continue;
			said.add(text(v));
			context.fillText((v > 0 && state.shown === 'difference' ? '+' : '') + text(v), x + 18, top + Math.min(Math.max((1 - place(v)) * size, 4), size - 2));
		}
	}

	/* ---- pointing ---- */
	function describe(r, c) {
		const i = r * state.cols.count + c, {rows, cols} = state;
		const place = (role, group, g) => {
			const ranks = group.ranks[g], of = role === 'trainer' ? plan.stage : plan.engineOf;
			let said = group.label(g);
			if (ranks.length > 1) return said + (said.includes('s ' + ranks[0]) ? '' : ' (' + (role === 'trainer' ? 'trainers ' : 'ranks ') + rangesText(ranks) + ')');
			said = (role === 'trainer' ? 'trainer ' : 'inference rank ') + ranks[0];
			if (role === 'trainer') said += ' (stage ' + of[ranks[0]];
			else said += ' (engine ' + of[ranks[0]] + ', rank ' + plan.engineRank[ranks[0]];
			if (plan.topology) said += ', host ' + plan.topology.hosts[plan.topology[role].host[ranks[0]]];
			return said + ')';
		};
		let said = place('trainer', rows, r) + '\nto ' + place('inference', cols, c) + ':\n';
		const by = rows.ranks[r].length === 1 && cols.ranks[c].length === 1 ? plan.transportOf(rows.ranks[r][0], cols.ranks[c][0]) : null;
		const amount = (sums) => bytesText(sums.bytes[i]) + ' in ' + plural(sums.routes[i], 'route') + (by ? ', by ' + by : '');
		if (!grid.other) return said + amount(grid.own);
		return said + plan.own.name + ': ' + amount(grid.own) + '\n' + plan.other.name + ': ' + amount(grid.other);
	}
	function point(r, c, x, y) {
		state.at = [r, c];
		paint();
		const said = describe(r, c), box = canvas.getBoundingClientRect(), zoom = box.width / width;
		byId('heat-detail').textContent = said.replace(/\n/g, ' ');
		showTip(said, x === undefined ? box.left + (frame.left + (c + 1) * frame.cellWidth) * zoom : x,
			y === undefined ? box.top + (frame.top + (r + .5) * frame.cellHeight) * zoom : y);
	}
	function cellUnder(event) {
		const box = canvas.getBoundingClientRect(), zoom = box.width / width;
		const c = Math.floor(((event.clientX - box.left) / zoom - frame.left) / frame.cellWidth);
		const r = Math.floor(((event.clientY - box.top) / zoom - frame.top) / frame.cellHeight);
		return r >= 0 && c >= 0 && r < state.rows.count && c < state.cols.count ? [r, c] : null;
	}
	function leave() {
		hideTip();
		if (state.at) { state.at = null; paint(); }
	}
	function list(at) {
		if (at) pick(rangesText(state.rows.ranks[at[0]]), rangesText(state.cols.ranks[at[1]]));
	}
	canvas.addEventListener('pointermove', (event) => {
		const at = cellUnder(event);
		if (at) point(at[0], at[1], event.clientX, event.clientY);
		else leave();
	});
	canvas.addEventListener('pointerleave', leave);
	canvas.addEventListener('blur', leave);
	canvas.addEventListener('click', (event) => {
		const at = cellUnder(event);
		if (!at) return;
		point(at[0], at[1], event.clientX, event.clientY);
		list(at);
	});
	canvas.addEventListener('focus', () => { if (!state.at && canvas.matches(':focus-visible')) point(0, 0); });
	canvas.addEventListener('keydown', (event) => {
		const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
		const at = state.at || [0, 0], far = event.shiftKey ? 16 : 1;
		if (step)
			point(Math.min(Math.max(at[0] + step[0] * far, 0), state.rows.count - 1), Math.min(Math.max(at[1] + step[1] * far, 0), state.cols.count - 1));
		else if (event.key === 'Home') point(at[0], 0);
		else if (event.key === 'End') point(at[0], state.cols.count - 1);
		else if (event.key === 'Enter' || event.key === ' ') list(at);
		else if (event.key === 'Escape') leave();
		else return;
		event.preventDefault();
	});

	/* ---- controls ---- */
	function redraw() {
		layout();
		paint();
		canvas.setAttribute('aria-label', 'Heat map of ' + state.metric + ' from ' + axisTitle('trainer', state.rows) + ' to ' +
			axisTitle('inference', state.cols) + ', ' + state.rows.count + ' by ' + state.cols.count);
	}
	function recompute() { state.at = null; compute(); redraw(); }
	const controls = byId('heat-controls');
	const change = (key) => (value) => { state[key] = value; recompute(); };
	controls.append(choose('colour', [['log', 'logarithmic'], ['linear', 'linear'], ['least', 'linear from the least']], 'log', change('scale')));
	controls.append(choose('of', [['bytes', 'bytes'], ['routes', 'routes']], 'bytes', change('metric')));
	if (plan.cells) controls.append(choose('plan', [['own', plan.own.name], ['other', plan.other.name],
		['difference', plan.own.name + ' less ' + plan.other.name]], 'own', change('shown')));
	if (rowGroups.length > 1)
		controls.append(choose('rows', rowGroups.map((g, i) => [String(i), g.name]), '0', (i) => { state.rows = rowGroups[i]; recompute(); }));
	if (colGroups.length > 1)
		controls.append(choose('columns', colGroups.map((g, i) => [String(i), g.name]), '0', (i) => { state.cols = colGroups[i]; recompute(); }));
	controls.append(make('button', {type: 'button', on: {click: () => {
		const before = ratio;
		leave();
		ratio = 3; /* enough for print */
		paint();
		canvas.toBlob((blob) => save('weft-heat-map.png', blob));
		ratio = before;
		paint();
	}}}, 'Save PNG'));
	byId('heat-map').append(canvas);
	recompute();
	return {redraw: () => { ratio = paper ? 3 : Math.max(1, devicePixelRatio || 1); redraw(); }, state, sums: () => grid, frame: () => ({...frame, width})};
}
