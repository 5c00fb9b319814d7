'use strict';
/* SPDX-License-Identifier: Apache-2.0
 * data.js -- the file's data as typed arrays, numbers for people, and small help with the DOM.
 * Names are foreign text: they reach the page as textContent only. */

const byId = (id) => document.getElementById(id);

/* What goes wrong is shown in the page, never a blank. */
function showError(error) {
	const status = byId('status');
	status.hidden = false;
	status.className = 'failed';
	status.setAttribute('role', 'alert');
	status.textContent = 'The charts could not be drawn: ' + (error && error.message ? error.message : error) +
		'\nThe figures below are complete without them.' + (error && error.stack ? '\n' + error.stack : '');
}
addEventListener('error', (event) => showError(event.error || event.message));
addEventListener('unhandledrejection', (event) => showError(event.reason));

/* How wide a drawing may be: its place in the window, or on paper. */
let paper = 0;
const PAPER_WIDTH = 690; /* A4 less its margins, at 96 a CSS inch */
const roomOf = (node) => paper || Math.max(280, node.clientWidth || 1000);

function make(tag, attributes, ...children) {
	const node = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes || {})) {
		if (name === 'on') for (const [what, act] of Object.entries(value)) node.addEventListener(what, act);
		else if (value !== null && value !== false) node.setAttribute(name, value === true ? '' : value);
	}
	node.append(...children);
	return node;
}
const SVG = 'http://www.w3.org/2000/svg'; /* a name, not an address */
function makeSvg(tag, attributes, text) {
	const node = document.createElementNS(SVG, tag);
	for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
	if (text !== undefined) node.textContent = text;
	return node;
}

/* ---- numbers ---- */

function bytesText(bytes) { /* as weft itself spells them: powers of 1000, three digits */
	const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB'];
	let value = Math.abs(bytes), unit = 0;
	while (value >= 999.5 && unit + 1 < units.length) { value /= 1000; unit++; }
	return (bytes < 0 ? '\u2212' : '') + value.toFixed(unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2) + ' ' + units[unit];
}
const secondsText = (s) => s === 0 ? '0' : s < 1e-3 ? +(s * 1e6).toPrecision(3) + ' \u00b5s' : s < 1 ? +(s * 1e3).toPrecision(3) + ' ms' : +s.toPrecision(3) + ' s';
const grouped = (value) => String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ',');
const plural = (n, word) => grouped(n) + ' ' + word + (n === 1 ? '' : 's');

/* "0-3, 7" */
function rangesText(ranks) {
	const out = [];
	for (let i = 0; i < ranks.length;) {
		let j = i;
		while (j + 1 < ranks.length && ranks[j + 1] === ranks[j] + 1) j++;
		out.push(i === j ? String(ranks[i]) : ranks[i] + '-' + ranks[j]);
		i = j + 1;
	}
	return out.join(', ');
}
/* null: not a list of ranks; '' is all of them */
function rangesParse(text, count) {
	if (!text.trim()) return undefined;
	const wanted = new Uint8Array(count);
	for (const part of text.split(',')) {
		const match = /^\s*(\d+)\s*(?:[-\u2013]\s*(\d+)\s*)?$/.exec(part);
		if (!match) return null;
		for (let r = +match[1]; r <= Math.min(match[2] === undefined ? +match[1] : +match[2], count - 1); r++) wanted[r] = 1;
	}
	return wanted;
}
/* ticks at 1, 2 or 5 times a power of ten */
function niceTicks(low, high, about) {
	const rough = (high - low) / about || 1, power = 10 ** Math.floor(Math.log10(rough));
	const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) || rough;
	const ticks = [];
	for (let k = Math.ceil(low / step - 1e-9); k * step <= high * (1 + 1e-12) + step * 1e-9; k++) ticks.push(k * step);
	return ticks;
}

/* ---- columns ---- */

function decode(node) { /* lines of base64, each a whole number of values */
	const width = +node.dataset.width, count = +node.dataset.count;
	const bytes = new Uint8Array(width * count);
	let at = 0;
	for (const line of node.textContent.split('\n')) {
		if (!line) continue;
		const raw = atob(line);
		for (let i = 0; i < raw.length; i++) bytes[at++] = raw.charCodeAt(i);
	}
	if (at !== bytes.length) throw new Error('the file is cut: ' + node.id + ' has ' + at + ' bytes of ' + bytes.length);
	node.textContent = ''; /* the text is not needed again */
	if (width === 1) return bytes;
	if (width === 2) return new Uint16Array(bytes.buffer);
	if (width === 4) return new Uint32Array(bytes.buffer);
	const halves = new Uint32Array(bytes.buffer), values = new Float64Array(count);
	for (let i = 0; i < count; i++) values[i] = halves[2 * i] + halves[2 * i + 1] * 4294967296;
	return values;
}
function columns(prefix, names) {
	const table = {};
	for (const name of names) {
		const node = byId('weft-' + prefix + name);
		if (!node) return null;
		table[name] = decode(node);
	}
	table.count = table[names[0]].length;
	return table;
}
function readPlan() {
	const text = byId('weft-head');
	if (!text) throw new Error('the file is cut: it has no data');
	const plan = JSON.parse(text.textContent);
	plan.routes = plan.has_routes ? columns('', ['tensor', 'trainer', 'inference', 'bytes', 'pieces', 'how']) : null;
	if (plan.has_routes && !plan.routes) throw new Error('the file is cut: columns of the routes are missing');
	plan.cells = columns('cell-', ['trainer', 'inference', 'bytes', 'routes']);
	plan.trainers = plan.stage.length;
	plan.inference = plan.engine.length / 2;
	plan.engineOf = plan.own.inference.map((_, i) => plan.engine[2 * i]);
	plan.transportOf = (trainer, inference) => { /* the first that reaches; null: one for all */
		const by = (plan.transports || []).find((t) => t.trainer[trainer] && t.trainer[trainer] === t.inference[inference]);
		return by ? by.name : null;
	};
	plan.engineRank = plan.own.inference.map((_, i) => plan.engine[2 * i + 1]);
	return plan;
}

/* ---- ranks in groups: each rank, hosts, stages or engines, or blocks of equal size ---- */

function grouping(name, of, label) {
	const ids = new Map(), index = new Int32Array(of.length), ranks = [];
	of.forEach((id, rank) => {
		if (!ids.has(id)) { ids.set(id, ranks.length); ranks.push([]); }
		index[rank] = ids.get(id);
		ranks[index[rank]].push(rank);
	});
	const keys = [...ids.keys()];
	return {name, index, ranks, count: ranks.length, label: (g) => label(keys[g], ranks[g])};
}
function groupings(plan, role) {
	const n = role === 'trainer' ? plan.trainers : plan.inference;
	const one = role === 'trainer' ? 'trainer' : 'rank';
	const all = Array.from({length: n}, (_, r) => r), list = [];
	const distinct = (of) => new Set(of).size;
	list.push(grouping(one + 's', all, (r) => one + ' ' + r));
	const hosts = plan.topology && plan.topology[role].host;
	if (hosts && distinct(hosts) < n)
		list.push(grouping('hosts', hosts, (h) => 'host ' + plan.topology.hosts[h]));
	const of = role === 'trainer' ? plan.stage : plan.engineOf;
	if (distinct(of) > 1 && distinct(of) < n)
		list.push(grouping(role === 'trainer' ? 'stages' : 'engines', of, (g) => (role === 'trainer' ? 'stage ' : 'engine ') + g));
	const size = 2 ** Math.ceil(Math.log2(n / 256));
	if (n > 256)
		list.push(grouping('blocks of ' + size, all.map((r) => Math.floor(r / size)), (_, ranks) => one + 's ' + rangesText(ranks)));
	return list.filter((g) => g.count <= 256).sort((a, b) => b.count - a.count);
}

/* ---- the tooltip ---- */

function showTip(text, x, y) {
	const tip = byId('tip');
	tip.textContent = text;
	tip.hidden = false;
	const box = tip.getBoundingClientRect();
	const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
	const top = y + 16 + box.height > innerHeight ? y - 12 - box.height : y + 16;
	tip.style.transform = 'translate(' + Math.max(4, left) + 'px,' + Math.max(4, top) + 'px)';
}
const hideTip = () => { byId('tip').hidden = true; };

function choose(label, options, value, act) { /* a labelled <select> */
	const select = make('select', {on: {change: () => act(select.value)}});
	for (const [key, text] of options) select.append(make('option', {value: key, selected: key === value}, text));
	return make('label', {}, label, select);
}

function save(name, blob) {
	const link = make('a', {href: URL.createObjectURL(blob), download: name});
	document.body.append(link);
	link.click();
	link.remove();
	setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
