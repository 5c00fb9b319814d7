# SPDX-License-Identifier: Apache-2.0
"""The HTML report in headless Chromium: it opens from a file with no network, draws without an
error, agrees with its dump, and stays quick from 2x2 to 10^6 routes. Skipped where there is no
chromium, unless WEFT_BROWSER=require. WEFT_SHOTS=FOLDER keeps the pictures, to be looked at."""
import html.parser
import json
import os
import re
import time

import browser as browsers
import job as jobs
import pytest
import synthetic_dump

if not browsers.program():
    if os.environ.get("WEFT_BROWSER") == "require":
        pytest.fail("WEFT_BROWSER=require, and there is no chromium: ./bootstrap deps installs it", pytrace=False)
    pytest.skip("there is no chromium to open the report in: ./bootstrap deps installs it", allow_module_level=True)

PATIENCE = 10.0  # seconds: far above what is seen, so that only a freeze fails

# what the page itself adds up, from the columns in the file
SUMS = """(() => { const p = weft.plan, r = p.routes, t = new Array(p.trainers).fill(0), i = new Array(p.inference).fill(0),
  n = new Array(p.trainers).fill(0).map(() => new Set());
  for (let k = 0; k < r.count; k++) { t[r.trainer[k]] += r.bytes[k]; i[r.inference[k]] += r.bytes[k]; n[r.trainer[k]].add(r.inference[k]); }
  return {routes: r.count, pieces: r.pieces.reduce((a, b) => a + b, 0), trainer_bytes: t, inference_bytes: i,
          sessions: n.map(s => s.size), map: weft.map.sums().own.bytes.reduce((a, b) => a + b, 0)}; })()"""
ROWS = """[...document.querySelectorAll('.viewport .row')].filter(r => !r.hidden)
  .map(r => [...r.children].map(c => c.textContent))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    # short: the profile's socket has a path of its own
    one = browsers.Browser(tmp_path_factory.mktemp("chromium"))
    yield one
    one.close()


class Report:
    def __init__(self, path, summary, seconds=None):
        self.path, self.summary, self.seconds = path, summary, seconds


def export(folder, dump, *more):
    path = folder / (dump.stem + ".html")
    jobs.weft("route", "export", dump, "--format", "html", "--output", path, *more)
    return path


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    made = {}

    def make(name):
        if name in made:
            return made[name]
        dump = folder / f"{name}.json"
        if name == "2x2":
            summary = synthetic_dump.write(dump, 2, 2, 20, names=synthetic_dump.HOSTILE)
            path = export(folder, dump)
        elif name == "8x8":
            summary = synthetic_dump.write(dump, 8, 8, 100, stages=2, per_engine=4)
            synthetic_dump.write(folder / "other.json", 8, 8, 100, stages=2, per_engine=4, turn=1, policy="lpt")
            path = export(folder, dump, "--beside", folder / "other.json")
        elif name == "256x256":
            jobs.weft("route", "plan", "--model", "Llama-3.1-8B", "--train", "world=256,pp=4", "--infer",
                      "engines=32,tp=8", "--output", dump)
            summary = json.loads(dump.read_text())["summary"]
            path = export(folder, dump)
        elif name == "1024x1024":
            summary = synthetic_dump.write(dump, 1024, 1024, 20, stages=16, per_engine=16)
            path = export(folder, dump)
        else:
            summary = synthetic_dump.write(dump, 64, 256, 3907, stages=4, per_engine=8, names=synthetic_dump.HOSTILE)
            path = export(folder, dump)
        dump.unlink()
        made[name] = Report(path, summary)
        return made[name]

    return make


def opened(browser, report, **how):
    seconds = browser.open(report.path, **how)
    assert browser.trouble() == []
    assert browser.evaluate("document.getElementById('status').hidden"), browser.evaluate(
        "document.getElementById('status').textContent")
    return seconds


def timed(browser, expression):
    begin = time.monotonic()
    browser.evaluate(expression)
    browser.frame()
    return time.monotonic() - begin


SIZES = ["2x2", "8x8", "256x256", "1024x1024", "10^6 routes"]


@pytest.mark.parametrize("size", SIZES)
def test_report__opens_without_an_error_and_says_what_the_dump_says(browser, reports, size):
    report = reports(size)
    assert opened(browser, report) < PATIENCE
    sums = browser.evaluate(SUMS)
    for key in ("routes", "pieces", "trainer_bytes", "inference_bytes", "sessions"):
        assert sums[key] == report.summary[key], key
    assert sums["map"] == report.summary["bytes_total"]
    count = browser.evaluate("document.getElementById('route-count').textContent")
    assert f"{report.summary['routes']:,} route" in count
    assert browser.evaluate("document.querySelectorAll('.chart svg path:is([class^=bar-], [class^=line-])').length") >= 4


@pytest.mark.parametrize("size", SIZES)
def test_report__asks_the_network_for_nothing(browser, reports, size):
    report = reports(size)
    opened(browser, report)
    browser.evaluate("weft.table.fill('layers', '0', '0')")
    browser.click(600, 400)
    assert [url for url in browser.requests() if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in browser.requests() if url.startswith("file:")]) == 1  # the page, and nothing else
    text = report.path.read_text()
    assert len(text) < 25_000_000
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1)
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "http" not in policy
    # the policy holds: a request, an image and a script that the page never had are refused
    assert browser.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')") == "refused"
    assert browser.evaluate("""new Promise(done => { const s = document.createElement('script');
        s.textContent = 'window.owned = 1'; document.body.append(s); setTimeout(() => done(window.owned || 0), 50); })""") == 0
    refused = [event for event in browser.events if event["method"] == "Log.entryAdded"
               and "Content Security Policy" in event["params"]["entry"]["text"]]
    assert len(refused) >= 2


def test_names__of_any_text_stay_text(browser, reports):
    opened(browser, reports("2x2"))
    assert browser.evaluate("document.title") == "synthetic, greedy"
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert browser.evaluate("weft.plan.tensors")[:len(synthetic_dump.HOSTILE)] == synthetic_dump.HOSTILE
    assert browser.evaluate("[...document.querySelectorAll('#unwanted bdi')].map(b => b.textContent)") == \
        synthetic_dump.HOSTILE
    rows = browser.evaluate(ROWS)
    assert [row[0] for row in rows[:20:2]] == synthetic_dump.HOSTILE[:10]
    browser.evaluate("weft.table.fill(\"</script>\", '', '')")
    assert browser.evaluate("weft.table.state.list.length") == 2 * sum("</script>" in n for n in synthetic_dump.HOSTILE)


def test_labels__of_any_text_stay_text(browser, tmp_path):
    bad = "\"><script>document.title='owned'</script><b x='"
    synthetic_dump.write(tmp_path / "bad.json", 2, 2, 3, labels=(bad, bad, bad), policy=bad)
    opened(browser, Report(export(tmp_path, tmp_path / "bad.json"), None))
    assert browser.evaluate("document.title") == f"{bad}, {bad}"
    assert browser.evaluate("document.querySelector('h1').textContent") == bad
    assert browser.evaluate("document.querySelectorAll('b, script[src]').length") == 0


def test_table__of_a_million_routes_scrolls_searches_and_sorts(browser, reports):
    report = reports("10^6 routes")
    opened(browser, report)
    total = report.summary["routes"]
    assert browser.evaluate("document.querySelectorAll('.viewport .row').length") < 40
    assert timed(browser, "weft.table.viewport.scrollTop = 1e9") < PATIENCE
    last = browser.evaluate(ROWS)[-1]
    names = browser.evaluate("weft.plan.tensors.slice(-1)")
    assert last[0] == names[0] and last[2] == "255"
    # the middle of the bar is the middle of the table
    browser.evaluate("weft.table.viewport.scrollTop = (weft.table.viewport.scrollHeight - weft.table.viewport.clientHeight) / 2")
    browser.frame()
    at = browser.evaluate("+document.querySelector('.viewport .row').getAttribute('aria-rowindex')")
    assert abs(at - total / 2) < 30
    # typed by a person
    browser.evaluate("document.getElementById('search-tensor').focus()")
    begin = time.monotonic()
    browser.type("layers.45.part6")
    assert time.monotonic() - begin < PATIENCE
    assert browser.evaluate("weft.table.state.list.length") == 256
    browser.evaluate("weft.table.fill('', '3, 7-8', '250-255')")
    rows = browser.evaluate("[...weft.table.state.list].map(k => [weft.plan.routes.trainer[k], weft.plan.routes.inference[k]])")
    assert rows and all(t in (3, 7, 8) and r >= 250 for t, r in rows)
    browser.evaluate("weft.table.fill('', 'x', '')")
    assert browser.evaluate("document.getElementById('search-trainer').getAttribute('aria-invalid')") == "true"
    browser.evaluate("weft.table.fill('', '', '')")
    for column, descending in ((3, True), (1, False), (2, False), (0, False)):
        assert timed(browser, f"document.querySelectorAll('.head button')[{column}].click()") < PATIENCE
        key = ["tensor", "trainer", "inference", "bytes"][column]
        value = f"(k => {'weft.plan.tensors[weft.plan.routes.tensor[k]]' if column == 0 else f'weft.plan.routes.{key}[k]'})"
        wrong = browser.evaluate(f"""(() => {{ const l = weft.table.state.list, v = {value}; let wrong = 0;
            for (let i = 1; i < l.length; i++) {{ const a = v(l[i - 1]), b = v(l[i]);
              if ({'a < b' if descending else 'a > b'} || a === b && l[i - 1] > l[i]) wrong++; }} return [wrong, l.length]; }})()""")
        assert wrong == [0, total], f"sorted by {key}"
        assert browser.evaluate(f"document.querySelectorAll('[role=columnheader]')[{column}].getAttribute('aria-sort')") == \
            ("descending" if descending else "ascending")
    assert browser.trouble() == []


def cell(browser, row, column):
    """The middle of a heat map's cell, in the window."""
    return browser.evaluate(f"""(() => {{ const c = document.querySelector('canvas'); c.scrollIntoView({{block: 'center'}});
        const b = c.getBoundingClientRect(), f = weft.map.frame(), z = b.width / f.width;
        return [b.left + (f.left + ({column} + .5) * f.cellWidth) * z, b.top + (f.top + ({row} + .5) * f.cellHeight) * z]; }})()""")


def test_heat_map__tells_and_filters_by_pointer_and_by_keys(browser, reports):
    opened(browser, reports("8x8"))
    wanted = browser.evaluate("""[...weft.plan.routes.trainer].reduce((n, t, k) =>
        n + (t === 5 && weft.plan.routes.inference[k] === 2 ? weft.plan.routes.bytes[k] : 0), 0)""")
    browser.mouse("mouseMoved", *cell(browser, 5, 2))
    browser.frame()
    tip = browser.evaluate("document.getElementById('tip').textContent")
    assert tip.replace("\n", " ") == browser.evaluate("document.getElementById('heat-detail').textContent")
    assert "trainer 5 (stage 1)" in tip and "inference rank 2 (engine 0, rank 2)" in tip
    assert f"greedy: {browser.evaluate(f'bytesText({wanted})')} in" in tip and "lpt: " in tip
    browser.click(*cell(browser, 5, 2))
    assert browser.evaluate("[document.getElementById('search-trainer').value, document.getElementById('search-inference').value]") == ["5", "2"]
    assert browser.evaluate("weft.table.state.bytes") == wanted
    # by keys: focus, three to the right, one down, Enter
    browser.evaluate("document.querySelector('canvas').focus()")
    browser.key("Home")
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        browser.key(key)
    at = browser.evaluate("weft.map.state.at")
    assert at[1] == 3
    browser.key("ArrowDown")
    browser.key("Enter")
    browser.frame()
    assert browser.evaluate("[document.getElementById('search-trainer').value, document.getElementById('search-inference').value]") == \
        [str(at[0] + 1), "3"]
    # the other plan, and the difference: it adds up to nothing
    for value in ("other", "difference"):
        browser.evaluate(f"""(() => {{ const s = [...document.querySelectorAll('#heat-controls select')][2];
            s.value = '{value}'; s.dispatchEvent(new Event('change')); }})()""")
        total = browser.evaluate("weft.map.sums().values.reduce((a, b) => a + b, 0)")
        assert total == (0 if value == "difference" else browser.evaluate("weft.plan.own.bytes"))
    assert browser.trouble() == []


def test_heat_map__is_grouped_above_256(browser, reports):
    opened(browser, reports("1024x1024"))
    assert browser.evaluate("[weft.map.state.rows.count, weft.map.state.cols.count]") == [256, 256]
    x, y = cell(browser, 3, 200)
    browser.click(x, y)
    assert browser.evaluate("document.getElementById('search-trainer').value") == "12-15"
    assert browser.evaluate("document.getElementById('search-inference').value") == "800-803"
    names = browser.evaluate("[...document.querySelectorAll('#heat-controls label')].slice(-1)[0].textContent")
    assert "engines" in names and "blocks of 4" in names


def test_topology__gives_bars_by_nic_and_host_under_the_bound(browser, tmp_path, shots):
    job = ("--model", "Qwen3-4B", "--train", "world=16,pp=2", "--infer", "engines=4,tp=4",
           "--topology", "per_host=8,nics=4,gbps=400")
    jobs.weft("route", "plan", *job, "--output", tmp_path / "plan.json")
    report = Report(export(tmp_path, tmp_path / "plan.json"), None)
    opened(browser, report)
    titles = browser.evaluate("[...document.querySelectorAll('.chart h3')].map(h => h.textContent)")
    assert titles[3:] == ["What each NIC sends", "What each NIC receives", "What each host sends", "What each host receives"]
    certificate = json.loads((tmp_path / "plan.json").read_text())["summary"]["certificate"]
    assert browser.evaluate("weft.plan.topology.bound_seconds") == pytest.approx(certificate["bound_seconds"])
    tall = browser.evaluate("weft.loads.specs.map(s => s.plans[0].values.reduce((a, b) => Math.max(a, b), 0))")
    assert max(tall[3:]) == pytest.approx(certificate["makespan_seconds"])
    rows = Figures(report.path.read_text()).rows
    assert rows["bound_seconds"][0][1] == certificate["bound_limit"]
    browser.screenshot(shots / "topology.png")
    assert browser.trouble() == []


def test_measured__what_each_rank_took_stands_beside_what_the_plan_gives_it(browser, tmp_path, shots):
    """`weft bench update --report`: the report of the plan by which it ran, with medians of its own updates."""
    page = tmp_path / "measured.html"
    jobs.weft("bench", "update", "--model", jobs.make_model(tmp_path, "qwen2"), "--train", "world=3,source=gathered",
              "--infer", "engines=2,tp=2", "--updates", "3", "--warmup", "1", "--report", page)
    assert not list(tmp_path.glob("*.plan"))
    opened(browser, Report(page, None))
    titles = browser.evaluate("[...document.querySelectorAll('.chart h3')].map(h => h.textContent)")
    assert titles[:2] == ["What each trainer took", "What each inference rank took"]
    measured, predicted = browser.evaluate("weft.loads.specs[0].plans.map(p => p.values)")
    assert len(measured) == len(predicted) == 3 and all(value > 0 for value in measured)
    assert sum(measured) == pytest.approx(sum(predicted))
    sent = browser.evaluate("weft.plan.own.trainer")
    assert [value / sum(predicted) for value in predicted] == pytest.approx([value / sum(sent) for value in sent])
    assert len(browser.evaluate("weft.plan.measured.inference")) == 4
    browser.screenshot(shots / "measured.png")
    assert browser.trouble() == []


def test_keys__reach_every_control(browser, reports):
    opened(browser, reports("8x8"))
    browser.evaluate("document.body.focus()")
    seen = set()
    for _ in range(60):
        browser.key("Tab", windowsVirtualKeyCode=9)
        seen.add(browser.evaluate("(e => e.id || e.tagName + ':' + (e.getAttribute('aria-label') || e.textContent).slice(0, 20))(document.activeElement)"))
    wanted = browser.evaluate("""[...document.querySelectorAll('a, button, select, input, canvas, [tabindex], summary')]
        .map(e => e.id || e.tagName + ':' + (e.getAttribute('aria-label') || e.textContent).slice(0, 20))""")
    assert wanted and set(wanted) <= seen
    assert any("Bytes by trainer" in name for name in wanted)


def brightness(browser):
    return browser.evaluate("getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b)")


def test_theme__follows_the_system_and_the_button(browser, reports):
    for dark in (False, True):
        opened(browser, reports("8x8"), dark=dark)
        assert (brightness(browser) < 200) == dark
        browser.evaluate("document.getElementById('theme').click()")
        assert (brightness(browser) < 200) != dark
    # what lies on the canvas changes with it
    corner = "[...document.querySelector('canvas').getContext('2d').getImageData(1, 1, 1, 1).data].slice(0, 3).reduce((a, b) => a + b)"
    assert browser.evaluate(corner) == brightness(browser)


@pytest.mark.parametrize("size", SIZES)
def test_pictures__light_dark_narrow_and_print_are_drawn(browser, reports, shots, size):
    report, name = reports(size), size.replace("^", "").replace(" ", "-")
    for look, how in (("light", {}), ("dark", {"dark": True}), ("narrow", {"width": 600})):
        opened(browser, report, **how)
        browser.screenshot(shots / f"{name}-{look}.png")
        assert (shots / f"{name}-{look}.png").stat().st_size > 20_000
        # nothing sticks out, nothing overlaps: no element is wider than the window
        assert browser.evaluate("document.documentElement.scrollWidth") <= how.get("width", 1280)
        wide = browser.evaluate("""[...document.querySelectorAll('svg text')].filter(t => { const a = t.getBoundingClientRect(),
            b = t.ownerSVGElement.getBoundingClientRect(); return a.left < b.left - 1 || a.right > b.right + 1; }).map(t => t.textContent)""")
        assert wide == []
    opened(browser, report, dark=True)
    browser.print(shots / f"{name}.pdf")
    assert (shots / f"{name}.pdf").read_bytes()[:5] == b"%PDF-"
    rows = browser.evaluate("document.querySelectorAll('#route-print tbody tr').length")
    assert rows == min(50, report.summary["routes"])
    note = browser.evaluate("document.querySelector('#route-print p').textContent")
    assert f"{report.summary['routes']:,} routes" in note
    assert brightness(browser) < 200  # the screen is dark again
    assert browser.trouble() == []


class Figures(html.parser.HTMLParser):
    """The figures as they stand in the file: no script ran."""

    def __init__(self, text):
        super().__init__()
        self.figure, self.rows = None, {}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        name = dict(attributes).get("id") or ""
        if tag == "tr":
            self.figure = name[7:] if name.startswith("figure-") else None
        if tag == "td" and self.figure:
            self.rows.setdefault(self.figure, []).append([])

    def handle_data(self, data):
        if self.figure and self.rows.get(self.figure) and data.strip():
            self.rows[self.figure][-1].append(data)


def test_figures__are_there_without_scripts(browser, reports):
    report = reports("8x8")
    rows = Figures(report.path.read_text()).rows
    for key in ("bytes_total", "makespan_bytes", "lower_bound_bytes", "receiver_bound_bytes", "prepared_bytes",
                "prepared_minimum_bytes"):
        assert rows[key][0][1] == f"{report.summary[key]:,}"
    assert rows["routes"][0][0] == f"{report.summary['routes']:,}"
    assert rows["sessions"][0][0] == f"{sum(report.summary['sessions']):,}"
    for how, count in report.summary["how_bytes"].items():
        assert rows[how][0][1] == f"{count:,}"
    assert all(len(row) == 3 and len("".join(row[2])) > 20 for row in rows.values())
    browser.open(report.path, scripts=False)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.evaluate("getComputedStyle(document.querySelector('.figures')).display") != "none"
    assert browser.evaluate("document.querySelectorAll('.drawn:not([hidden])').length") == 0
    assert "The figures below are complete" in browser.evaluate("document.querySelector('header').textContent")


def test_transports__of_each_pair_are_in_the_table_and_where_one_points(browser, tmp_path):
    page = export(tmp_path, jobs.ROOT / "tests/e2e/golden/mixed.json")
    browser.open(page)
    assert browser.trouble() == []
    assert browser.evaluate("[...document.querySelectorAll('[role=columnheader]')].map(e => e.textContent)")[-1] == "transport"
    assert browser.evaluate("[weft.plan.transportOf(0, 0), weft.plan.transportOf(0, 1)]") == ["shm", "verbs"]
    browser.evaluate("document.querySelectorAll('.head button')[6].click()")
    shown = browser.evaluate("[...document.querySelectorAll('.viewport .row')].filter(r => !r.hidden).map(r => r.lastChild.textContent)")
    assert {"shm", "verbs"} >= set(shown) - {""} and "shm" in shown, shown


def test_errors__of_the_script_are_shown_in_the_page(browser, reports, tmp_path):
    text = reports("8x8").path.read_text()
    cut = tmp_path / "cut.html"
    cut.write_text(re.sub(r'(id="weft-trainer"[^>]*>\n).*?</script>', r"\1</script>", text, flags=re.S))
    browser.open(cut)
    said = browser.evaluate("document.getElementById('status').textContent")
    assert "could not be drawn" in said and "the file is cut: weft-trainer" in said
    assert browser.evaluate("document.getElementById('status').hidden") is False


def test_a_dump_without_routes_or_of_another_job_is_refused(tmp_path):
    job = ("--model", "Qwen2.5-0.5B", "--train", "world=2", "--infer", "engines=1")
    (tmp_path / "short.json").write_text(jobs.weft("route", "plan", *job, "--json", "--summary").stdout)
    done = jobs.weft("route", "export", tmp_path / "short.json", "--format", "html", check=False)
    assert done.returncode == 1 and "--summary" in done.stderr
    jobs.weft("route", "plan", *job, "--output", tmp_path / "a.json")
    jobs.weft("route", "plan", *job[:3], "world=3", *job[4:], "--output", tmp_path / "b.json")
    done = jobs.weft("route", "export", tmp_path / "a.json", "--format", "html", "--beside", tmp_path / "b.json", check=False)
    assert done.returncode == 78 and "world=3" in done.stderr and "two jobs" in done.stderr
    done = jobs.weft("route", "export", tmp_path / "a.json", "--format", "csv", "--beside", tmp_path / "a.json", check=False)
    assert done.returncode == 2 and "--format html" in done.stderr
