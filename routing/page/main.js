/* main.js -- reads the data, draws every part, redraws when the window, the theme or the paper
 * changes. `weft` is what a reader may use in the browser's console. */

/* Loads of NICs and hosts: a rank's bytes lie on its nearest NICs in proportion to their speed. */
function topologyCharts(plan, common) {
	const top = plan.topology, charts = [];
	const spread = (role, values, nic) => {
		const out = new Array(nic ? top.nics.length : top.hosts.length).fill(0);
		values.forEach((bytes, r) => {
			if (!nic) { out[top.host_of[role][r]] += bytes; return; }
			const used = top.nics_of[role][r], speed = used.reduce((s, n) => s + top.nics[n].rate, 0);
			for (const n of used) out[n] += bytes * top.nics[n].rate / speed;
		});
		return out;
	};
	const plans = (role, nic) => {
		const key = role === 'trainer' ? 'trainer' : 'inference';
		const list = [{name: plan.own.name, values: spread(role, plan.own[key], nic), style: 'own'}];
		if (plan.other && !same(plan.own[key], plan.other[key]))
			list.push({name: plan.other.name, values: spread(role, plan.other[key], nic), style: 'other'});
		else if (plan.other) list[0].name = 'every policy';
		return list;
	};
	const hostOf = top.nics.map((nic) => nic.host);
	const nicName = (n) => top.hosts[top.nics[n].host] + ' ' + top.nics[n].name;
	for (const [nic, word, text] of [[true, 'NIC', (n) => 'NIC ' + nicName(n) + ', rail ' + top.nics[n].rail], [false, 'host', (h) => 'host ' + top.hosts[h]]])
		for (const [role, verb] of [['trainer', 'sends'], ['inference', 'receives']]) {
			const busy = plans(role, nic), use = busy[0].values.map((v, i) => i).filter((i) => busy.some((p) => p.values[i] > 0));
			const seconds = (i) => nic ? top.nics[i].rate : 0;
			busy.forEach((p) => { p.values = use.map((i) => p.values[i]); });
			charts.push({...common, title: 'Bytes that each ' + word + ' ' + verb, ranks: word + 's', names: (i) => text(use[i]) + (seconds(use[i]) ?
				', ' + bytesText(seconds(use[i])) + '/s, ' + (busy[0].values[i] / seconds(use[i]) * 1000).toFixed(2) + ' ms at full speed' : ''),
			plans: busy, bounds: boundOf(plan, role, nic, use, spread), text: bytesText, tick: (i) => nic ? top.nics[use[i]].name : top.hosts[use[i]], tickRoom: 78,
			edges: nic ? edgesOf(use.map((n) => top.hosts[hostOf[n]]), '') : [],
			caption: word + 's that no ' + (role === 'trainer' ? 'trainer' : 'inference rank') + ' uses are left out.' });
		}
	return charts;
}
/* The mean over all that send: no plan over these ranks has a lower largest bar than their mean. */
function boundOf(plan, role, nic, use, spread) {
	const values = spread(role, plan.own[role === 'trainer' ? 'trainer' : 'inference'], nic);
	const total = values.reduce((a, b) => a + b, 0);
	return use.length ? [{value: total / use.length, text: 'mean, which the largest cannot be below,'}] : [];
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
