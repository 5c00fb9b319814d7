/* SPDX-License-Identifier: Apache-2.0
 * main.js -- reads the data, draws every part, redraws when the window, the theme or the paper
 * changes. `weft` is what a reader may use in the browser's console. */

/* Loads of NICs and hosts, in seconds at full speed: a rank's bytes lie on its nearest NICs in
 * proportion to their speed; a host is all of its NICs. */
function topologyCharts(plan, common) {
	const top = plan.topology, charts = [];
	const hostRate = top.hosts.map(() => 0);
	for (const nic of top.nics) hostRate[nic.host] += nic.rate;
	const rate = {NIC: (n) => top.nics[n].rate, host: (h) => hostRate[h]};
	const label = {NIC: (n) => 'NIC ' + top.nics[n].name + ' of host ' + top.hosts[top.nics[n].host] + ', rail ' + top.nics[n].rail,
		host: (h) => 'host ' + top.hosts[h]};
	const spread = (role, loads, word) => {
		const out = new Array(word === 'NIC' ? top.nics.length : top.hosts.length).fill(0);
		loads.forEach((bytes, r) => {
			if (word === 'host') { out[top[role].host[r]] += bytes; return; }
			const used = top[role].nics[r], speed = used.reduce((s, n) => s + top.nics[n].rate, 0);
			for (const n of used) out[n] += bytes * top.nics[n].rate / speed;
		});
		return out;
	};
	for (const word of ['NIC', 'host'])
		for (const [role, verb] of [['trainer', 'sends'], ['inference', 'receives']]) {
			const other = plan.other && !same(plan.own[role], plan.other[role]) ? plan.other : null;
			const loads = (other ? [plan.own, other] : [plan.own]).map((one) => spread(role, one[role], word));
			const use = loads[0].map((_, i) => i).filter((i) => loads.some((load) => load[i] > 0));
			if (!use.length) continue;
			const plans = loads.map((load, p) => ({name: p ? other.name : !plan.other || other ? plan.own.name : role === 'inference' ? 'every policy' : plan.own.name + ' and ' + plan.other.name,
				style: p ? 'other' : 'own', values: use.map((i) => rate[word](i) ? load[i] / rate[word](i) : 0)}));
			charts.push({...common, title: 'What each ' + word + ' ' + verb, ranks: word + 's', plans, text: secondsText, tickRoom: 90,
				names: (i) => label[word](use[i]) + '\n' + loads.map((load, p) => plans[p].name + ': ' + bytesText(load[use[i]])).join('\n'),
				bounds: top.bound_seconds ? [{value: top.bound_seconds, text: 'least possible makespan'}] : [],
				tick: (i) => { const name = word === 'NIC' ? top.nics[use[i]].name : top.hosts[use[i]]; return name.length > 13 ? name.slice(0, 12) + '\u2026' : name; },
				edges: word === 'NIC' ? edgesOf(use.map((n) => top.hosts[top.nics[n].host]), '') : [],
				caption: 'Seconds at the full speed of the ' + (word === 'NIC' ? 'NIC' : 'host\u2019s NICs together') + '. No update on this topology takes less than the line. Those that no ' +
					(role === 'trainer' ? 'trainer' : 'inference rank') + ' uses are left out.'});
		}
	return charts;
}

/* What each rank took, beside what it would have at the mean rate of all: who is far from that is slower, or faster, than its
 * bytes explain. */
function measuredCharts(plan, common) {
	const charts = [];
	for (const [role, word, verb, names] of [['trainer', 'trainer', 'send', common.trainer], ['inference', 'inference rank', 'receive', common.rank]]) {
		const seconds = plan.measured[role], bytes = plan.own[role];
		const sum = (values) => values.reduce((a, b) => a + b, 0), rate = sum(bytes) / (sum(seconds) || 1);
		charts.push({...common, title: 'What each ' + word + ' took', ranks: word + 's', names, text: secondsText, bounds: [],
			edges: role === 'trainer' ? edgesOf(plan.stage, 'stage') : edgesOf(plan.engineOf, 'engine'),
			plans: [{name: 'measured', values: seconds, style: 'own'}, {name: 'its bytes at the mean rate', values: bytes.map((b) => rate ? b / rate : 0), style: 'other'}],
			caption: 'Seconds from the moment when all stood ready until it was through, the median of ' + plan.measured.updates + ' updates, and what it has to ' + verb + ' at the rate of all together.'});
	}
	return charts;
}

function start() {
	const plan = readPlan(), status = byId('status'), parts = [];
	for (const section of document.querySelectorAll('.drawn')) section.hidden = false;
	let table = null, map = null;
	if (plan.routes) {
		table = routeTable(plan);
		map = heatMap(plan, (trainers, ranks) => table.fill('', trainers, ranks));
		parts.push(map);
	} else {
		for (const id of ['heat-map', 'route-table'])
			byId(id).append(make('p', {class: 'caption'}, 'The dump was written with --summary: it has no routes.'));
		byId('heat-detail').hidden = true;
	}
	const loads = loadCharts(plan);
	parts.push(loads, howChart(plan));

	const button = byId('theme'), root = document.documentElement, dark = matchMedia('(prefers-color-scheme: dark)');
	const isDark = () => root.dataset.theme ? root.dataset.theme === 'dark' : dark.matches;
	const redraw = () => parts.forEach((part) => part.redraw());
	const showTheme = () => {
		button.textContent = isDark() ? 'light' : 'dark';
		button.setAttribute('aria-label', 'switch to the ' + button.textContent + ' theme');
		button.setAttribute('aria-pressed', String(isDark()));
		redraw();
	};
	button.addEventListener('click', () => { root.dataset.theme = isDark() ? 'light' : 'dark'; showTheme(); });
	dark.addEventListener('change', showTheme);
	let width = innerWidth, timer = 0;
	addEventListener('resize', () => {
		clearTimeout(timer);
		timer = setTimeout(() => { if (innerWidth !== width) { width = innerWidth; redraw(); } }, 100);
	});
	let before;
	addEventListener('beforeprint', () => {
		before = root.dataset.theme;
		root.dataset.theme = 'light';
		if (table) table.print();
		paper = PAPER_WIDTH;
		redraw();
	});
	addEventListener('afterprint', () => {
		paper = 0;
		if (before) root.dataset.theme = before;
		else delete root.dataset.theme;
		redraw();
	});
	showTheme();
	status.hidden = true;
	window.weft = {plan, table, map, loads};
}

try {
	start();
} catch (error) {
	showError(error);
}
