/* SPDX-License-Identifier: Apache-2.0
 * routes.js -- the table of all routes. Only the rows in sight are elements; what is shown is a
 * list of route numbers, filtered by one pass over the columns and sorted by counting, so 10^6
 * routes take tens of milliseconds. */

const ROW_HEIGHT = 26, ROWS_SHOWN = 20;
const SPACE_MAX = 8000000; /* browsers lose precision on taller elements; beyond, scrolling is scaled */
const PRINT_ROWS = 50;
const HOW_NAMES = ['direct', 'mapped', 'replica', 'landed'];
const howText = (bits) => HOW_NAMES.filter((_, i) => bits & 1 << i).join(' + ');

/* Stable radix sort of route numbers by whole numbers: ties stay in table order. */
function sortBy(list, key, descending) {
	let largest = 0;
	for (let i = 0; i < list.length; i++) largest = Math.max(largest, key(list[i]));
	let from = list, to = new Uint32Array(list.length);
	const keys = new Uint16Array(list.length);
	for (let unit = 1; unit <= largest || unit === 1; unit *= 65536) {
		const starts = new Uint32Array(65537);
		for (let i = 0; i < from.length; i++) {
			const digit = Math.floor(key(from[i]) / unit) % 65536;
			keys[i] = descending ? 65535 - digit : digit;
			starts[keys[i] + 1]++;
		}
		for (let d = 0; d < 65536; d++) starts[d + 1] += starts[d];
		for (let i = 0; i < from.length; i++) to[starts[keys[i]]++] = from[i];
		[from, to] = [to, from === list ? new Uint32Array(list.length) : from];
	}
	return from;
}

function routeTable(plan) {
	const routes = plan.routes, names = plan.tensors;
	/* how each column is shown, and the number it is sorted by; tensors sort by name */
	const byName = names.map((_, i) => i).sort((a, b) => names[a] < names[b] ? -1 : names[a] > names[b] ? 1 : a - b);
	const place = new Uint32Array(names.length);
	byName.forEach((tensor, i) => { place[tensor] = i; });
	const fields = [
		{key: 'tensor', title: 'tensor', text: (r) => names[routes.tensor[r]], rank: (r) => place[routes.tensor[r]]},
		{key: 'trainer', title: 'trainer', style: 'number', text: (r) => String(routes.trainer[r]), rank: (r) => routes.trainer[r]},
		{key: 'inference', title: 'rank', style: 'number', text: (r) => String(routes.inference[r]), rank: (r) => routes.inference[r]},
		{key: 'bytes', title: 'bytes', style: 'number', text: (r) => grouped(routes.bytes[r]), rank: (r) => routes.bytes[r]},
		{key: 'pieces', title: 'pieces', style: 'number wide', text: (r) => grouped(routes.pieces[r]), rank: (r) => routes.pieces[r]},
		{key: 'how', title: 'path', style: 'wide', text: (r) => howText(routes.how[r]), rank: (r) => routes.how[r]},
	];
	if (plan.transports) {
		const by = (r) => plan.transportOf(routes.trainer[r], routes.inference[r]);
		fields.push({key: 'transport', title: 'transport', style: 'wide', text: by, rank: (r) => plan.transports.findIndex((t) => t.name === by(r))});
		byId('routes').classList.add('by-transport');
	}
	const height = Math.min(Math.max(routes.count, 3), ROWS_SHOWN) * ROW_HEIGHT;
	const state = {search: '', trainer: '', inference: '', sort: null, descending: false, found: null, list: null, bytes: 0};

	/* ---- controls ---- */
	const field = (label, key, attributes) => {
		const input = make('input', {type: 'search', autocomplete: 'off', spellcheck: 'false', ...attributes});
		input.addEventListener('input', () => { state[key] = input.value; soon(); });
		return [input, make('label', {}, label, input)];
	};
	const [searchInput, searchLabel] = field('tensor', 'search', {class: 'wide', placeholder: 'part of a name', id: 'search-tensor'});
	const [trainerInput, trainerLabel] = field('trainer', 'trainer', {placeholder: '0, 4-7', id: 'search-trainer'});
	const [inferenceInput, inferenceLabel] = field('inference rank', 'inference', {placeholder: '0, 4-7', id: 'search-inference'});
	byId('route-controls').append(searchLabel, trainerLabel, inferenceLabel,
		make('button', {type: 'button', id: 'search-clear', on: {click: () => fill('', '', '')}}, 'Show all'));
	let timer = 0;
	const soon = () => { clearTimeout(timer); timer = setTimeout(filter, 60); };
	function fill(search, trainer, inference) {
		Object.assign(state, {search, trainer, inference});
		searchInput.value = search;
		trainerInput.value = trainer;
		inferenceInput.value = inference;
		filter();
	}

	/* ---- what is shown ---- */
	function filter() {
		const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
		const wanted = new Uint8Array(names.length);
		names.forEach((name, i) => { const low = name.toLowerCase(); wanted[i] = words.every((word) => low.includes(word)) ? 1 : 0; });
		const trainers = rangesParse(state.trainer, plan.trainers), ranks = rangesParse(state.inference, plan.inference);
		trainerInput.setAttribute('aria-invalid', String(trainers === null));
		inferenceInput.setAttribute('aria-invalid', String(ranks === null));
		if (trainers === null || ranks === null) {
			byId('route-count').textContent = 'Ranks are numbers and ranges: 0, 4-7';
			return;
		}
		const list = new Uint32Array(routes.count);
		let n = 0, bytes = 0;
		for (let r = 0; r < routes.count; r++) {
			if (!wanted[routes.tensor[r]] || trainers && !trainers[routes.trainer[r]] || ranks && !ranks[routes.inference[r]]) continue;
			list[n++] = r;
			bytes += routes.bytes[r];
		}
		state.found = list.slice(0, n); /* in table order */
		state.bytes = bytes;
		sort();
		byId('route-count').textContent = n === routes.count ? 'All ' + plural(n, 'route') + ', ' + bytesText(bytes) + '.'
			: plural(n, 'route') + ' of ' + grouped(routes.count) + ', ' + bytesText(bytes) + '.';
	}
	function sort() {
		state.list = !state.sort ? state.found : sortBy(state.found, fields.find((f) => f.key === state.sort).rank, state.descending);
		viewport.scrollTop = 0;
		resize();
		show(true);
	}
	function sortByField(key) {
		if (state.sort !== key) Object.assign(state, {sort: key, descending: key === 'bytes' || key === 'pieces'});
		else if (state.descending === (key === 'bytes' || key === 'pieces')) state.descending = !state.descending;
		else state.sort = null; /* third press: table order again */
		for (const f of fields) {
			f.header.setAttribute('aria-sort', state.sort !== f.key ? 'none' : state.descending ? 'descending' : 'ascending');
			f.header.firstChild.textContent = f.title + (state.sort !== f.key ? '' : state.descending ? ' \u25bc' : ' \u25b2');
		}
		sort();
	}

	/* ---- the rows in sight ---- */
	const head = make('div', {class: 'row head', role: 'row'});
	for (const f of fields) {
		f.header = make('div', {role: 'columnheader', 'aria-sort': 'none', class: f.style || ''},
			make('button', {type: 'button', on: {click: () => sortByField(f.key)}}, f.title));
		head.append(f.header);
	}
	const still = make('div', {class: 'still', role: 'rowgroup'}), space = make('div', {}, still);
	const viewport = make('div', {class: 'viewport', tabindex: '0', role: 'rowgroup', 'aria-label': 'routes'}, space);
	const table = make('div', {class: 'rows', role: 'table', 'aria-label': 'Routes'}, head, viewport);
	viewport.style.height = still.style.height = height + 'px';
	const pool = [];
	let firstShown = -1;
	for (let i = 0; i < Math.ceil(height / ROW_HEIGHT) + 2; i++) {
		const row = make('div', {class: 'row', role: 'row'});
		for (const f of fields) row.append(make('div', {role: 'cell', class: f.style || ''}));
		pool.push(row);
		still.append(row);
	}
	const nothing = make('p', {class: 'none', hidden: true}, 'No route matches.');
	still.append(nothing);
	function resize() {
		space.style.height = Math.max(height, Math.min(state.list.length * ROW_HEIGHT, SPACE_MAX)) + 'px';
		table.setAttribute('aria-rowcount', String(state.list.length + 1));
	}
	function show(force) {
		const n = state.list.length, room = height / ROW_HEIGHT;
		const reach = Math.min(n * ROW_HEIGHT, SPACE_MAX) - height;
		const top = reach > 0 ? viewport.scrollTop / reach * Math.max(0, n - room) : 0;
		/* rows alternate in colour by number, so the first shown is an even one */
		const first = Math.floor(top / 2) * 2;
		const shift = 'translateY(' + -((top - first) * ROW_HEIGHT).toFixed(1) + 'px)';
		for (let i = 0; i < pool.length; i++) pool[i].style.transform = shift;
		if (first === firstShown && !force) return;
		firstShown = first;
		nothing.hidden = n > 0;
		pool.forEach((row, i) => {
			const at = first + i;
			row.hidden = at >= n;
			if (at >= n) return;
			const route = state.list[at];
			row.setAttribute('aria-rowindex', String(at + 2));
			fields.forEach((f, c) => {
				const text = f.text(route), cell = row.children[c];
				if (cell.textContent === text) return;
				cell.textContent = text;
				if (c === 0) cell.title = text;
			});
		});
	}
	let waiting = false;
	viewport.addEventListener('scroll', () => {
		if (waiting) return;
		waiting = true;
		requestAnimationFrame(() => { waiting = false; show(false); });
	}, {passive: true});

	/* ---- on paper: the largest ---- */
	function print() {
		const list = state.sort ? state.list : sortBy(state.found, (r) => routes.bytes[r], true);
		const body = make('tbody');
		for (const r of list.subarray(0, PRINT_ROWS)) {
			const row = make('tr');
			for (const f of fields) row.append(make('td', {class: f.style === 'wide' ? '' : f.style || ''}, make('bdi', {}, f.text(r))));
			body.append(row);
		}
		const titles = make('tr');
		for (const f of fields) titles.append(make('th', {scope: 'col', class: f.style || ''}, f.title));
		byId('route-print').replaceChildren(make('p', {class: 'caption'}, list.length > PRINT_ROWS
			? (state.sort ? 'The first ' : 'The largest ') + PRINT_ROWS + ' of ' + plural(list.length, 'route') + '; the file itself has all of them.'
			: plural(list.length, 'route') + '.'), make('table', {}, make('thead', {}, titles), body));
	}

	byId('route-table').append(table);
	filter();
	return {fill, print, state, viewport};
}
