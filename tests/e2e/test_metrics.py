# SPDX-License-Identifier: Apache-2.0
"""Metrics of whole jobs: a real Prometheus scrapes one that lives, and evaluates every query of the dashboard; promtool judges
pages, rules and alerts; what is wrong is said; strangers at the port do the job no harm."""
import json
import re
import resource
import socket
import time

import pytest

import prometheus
from job import CONTROLLER, ROOT, Job, expected

DEPLOY = ROOT / "deploy" / "metrics"
PAGE = ROOT / "docs" / "metrics.md"
PORT = ("--metrics", "127.0.0.1:0")
TALKS = {"WEFT_LOG": "info"}
pytestmark = pytest.mark.shm


def families():
    """{name: (type, labels, help)} of metrics/families.h."""
    row = re.compile(r'X\(\w+,\s+(weft_\w+),\s+(\w+),\s+"([\w,]*)",\s+"((?:[^"\\]|\\.)*)"\)')
    found = {name: (kind.lower(), labels, text) for name, kind, labels, text
             in row.findall((ROOT / "metrics/families.h").read_text())}
    assert len(found) > 30
    return found


def port_of(process):
    deadline = time.monotonic() + 20
    while not (match := re.search(r"metrics at http://[^ ]*:(\d+)/metrics", process.stderr)):
        assert process.code is None and time.monotonic() < deadline, process.stderr
        time.sleep(0.01)
    return int(match[1])


def ports_of(job):
    return {name: port_of(process) for name, process in job.processes.items()}


def page_of(port):
    return prometheus.fetch(f"http://127.0.0.1:{port}/metrics")


def samples(text):
    """{name with labels: value} of a page, without the labels that every sample has."""
    of_all = re.search(r'weft_build_info\{(.*?),version=', text)[1]
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {re.sub(f"{of_all},?", "", name).replace("{}", ""): float(value) for name, value in lines}


def names_in(text):
    """Metrics that an expression names."""
    return {re.sub(r"_(?:bucket|sum|count)$", "", name) if re.search(r"_seconds_(?:bucket|sum|count)$", name) else name
            for name in re.findall(r"\bweft_\w+", text)} - {"weft_job"}


def queries():
    dashboard = json.loads((DEPLOY / "dashboard.json").read_text())
    return [(panel["title"], target["expr"].replace("$__rate_interval", "10s").replace("$weft_job", ".*"))
            for panel in dashboard["panels"] for target in panel["targets"]]


@pytest.fixture(scope="module")
def live(tmp_path_factory, models):
    """(job, prometheus, pages, files): two trainers and two engines, of which one is lost meanwhile."""
    folder = tmp_path_factory.mktemp("live")
    file = ("--metrics-file", folder / "%r.prom")
    with Job(folder / "job", models["qwen2"], "world=2,source=gathered", "engines=2,tp=1") as job:
        job.controller(*PORT, *file, "--on-loss", "continue", "--topology", "per_host=4,nics=4,gbps=100", "--lost-after", "1s",
                       "--heartbeat", "100ms", "--update-timeout", "5s", env=TALKS)
        for role in ("trainer", "inference"):
            for rank in range(2):
                job.worker(role, rank, *PORT, *file, "--interval", "200ms", "--transport", "tcp", "--nic", "lo", updates=100000,
                           env=TALKS)
        with prometheus.Prometheus(folder, ports_of(job).values(), DEPLOY / "alerts.yaml") as scraper:
            scraper.until('weft_sync_finished_total{result="ok"} > 3', lambda found: len(found) == 4)
            ports = ports_of(job)
            pages = {name: page_of(port) for name, port in ports.items()}
            job.kill("inference-1")
            scraper.until("weft_losses_total", lambda found: len(found) >= 4)  # of the controller, of all who are left
            yield job, scraper, pages, folder
    for process in job.processes.values():
        assert process.popen.returncode is not None


def test_live_job__is_scraped_by_prometheus_and_names_every_member(live):
    _, scraper, _, _ = live
    found = scraper.query("max_over_time(weft_build_info[5m])")  # one is gone by now
    assert {(labels.get("role", ""), labels.get("rank", "")) for labels, _ in found} == {
        ("", ""), ("trainer", "0"), ("trainer", "1"), ("inference", "0"), ("inference", "1")}
    assert {labels["weft_job"] for labels, _ in found} == {"test"} and {value for _, value in found} == {1}
    assert {value for _, value in scraper.query('weft_sync_finished_total{result="failed"}')} == {0}
    assert {labels["state"]: value for labels, value in scraper.query("weft_job_state")}["running"] == 1
    assert len(scraper.query("weft_plan_bytes")) == 4


def test_pages__please_promtool_and_agree_with_the_job(live):
    _, _, pages, folder = live
    assert len(pages) == 5
    for name, text in pages.items():
        prometheus.promtool("check", "metrics", text=text)
    for path in folder.glob("*.prom"):
        prometheus.promtool("check", "metrics", text=path.read_text())
    trainer, rank = samples(pages["trainer-0"]), samples(pages["inference-0"])
    controller = samples(pages["controller"])
    assert trainer["weft_sync_seconds_count"] == trainer['weft_sync_finished_total{result="ok"}'] >= 3
    assert trainer["weft_weight_version"] == trainer['weft_sync_finished_total{result="ok"}']
    assert rank["weft_weight_version"] == rank['weft_sync_finished_total{result="ok"}'] >= 3
    assert 0 <= rank["weft_sync_started_total"] - rank['weft_sync_finished_total{result="ok"}'] <= 1
    for role in ("trainer", "inference"):
        assert controller[f'weft_members{{role="{role}",state="connected"}}'] == 2
    sent = {name: controller[f'weft_plan_bytes{{role="{name[:-2]}",rank="{name[-1]}"}}'] for name in pages if "-" in name}
    assert trainer["weft_bytes_sent_total"] == sent["trainer-0"] * trainer["weft_weight_version"]
    assert rank["weft_bytes_received_total"] == sent["inference-0"] * rank["weft_weight_version"]
    # NICs are as they are now, the rest as of the last update; signals are no writes here
    assert 0 <= trainer['weft_nic_sent_bytes_total{nic="lo"}'] - trainer["weft_bytes_sent_total"] <= 2 * sent["trainer-0"]
    assert trainer['weft_nic_busy_seconds_total{nic="lo"}'] > 0
    assert 0 <= trainer['weft_nic_waiting_bytes{nic="lo"}'] <= sent["trainer-0"]
    assert sent["trainer-0"] + sent["trainer-1"] == sent["inference-0"] + sent["inference-1"]
    assert 0 < controller["weft_plan_bound_seconds"] <= controller["weft_plan_predicted_seconds"]
    assert controller["weft_update_bound_ratio"] == pytest.approx(
        controller["weft_plan_bound_seconds"] / controller['weft_slowest_update_seconds{role="trainer"}'], rel=1e-3)
    assert controller['weft_slowest_update_seconds{role="inference"}'] > 0
    assert trainer["weft_control_rtt_seconds_count"] >= 1 and 0 <= trainer["weft_controller_heard_age_seconds"] < 5


def test_loss__is_counted_by_its_code_and_the_job_goes_on(live):
    _, scraper, _, _ = live
    found = scraper.query("weft_losses_total")
    assert {labels["of"] for labels, _ in found} == {"inference"} and {value for _, value in found} == {1}
    assert {labels["code"] for labels, _ in found} == {"WEFT-E131"}
    assert scraper.query('weft_members{state="lost",role="inference"}')[0][1] == 1
    before = max(value for _, value in scraper.query('weft_weight_version{role="trainer"}'))
    scraper.until('weft_weight_version{role="trainer"}', lambda now: max(value for _, value in now) > before)
    assert [alert["name"] for group in scraper.ask("rules")["groups"] for alert in group["rules"] if alert["health"] == "err"] == []


def test_dashboard_and_alerts__name_what_is_there(live):
    _, scraper, pages, _ = live
    known, served = families(), set().union(*(names_in(text) for text in pages.values()))
    late = {"weft_losses_total", "weft_failures_total"}  # once there is one
    assert served - {name for name in known} == set() and set(known) - served == late
    for title, query in queries():
        assert names_in(query) <= set(known), title
        found = scraper.query(query)
        assert found or names_in(query) & {"weft_failures_total"} or 'result!="ok"' in query, f"{title}: {query} finds nothing"
    assert names_in(re.sub(r"#.*", "", (DEPLOY / "alerts.yaml").read_text())) - {"weft"} <= set(known)


def test_rules__fire_as_their_tests_say():
    prometheus.promtool("check", "rules", DEPLOY / "alerts.yaml")
    prometheus.promtool("test", "rules", DEPLOY / "alerts_test.yaml")


def test_alerts__each_has_a_test():
    alerts = re.findall(r"- alert: (\w+)", (DEPLOY / "alerts.yaml").read_text())
    tested = re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n", (DEPLOY / "alerts_test.yaml").read_text())
    assert len(alerts) == len(set(alerts)) and set(alerts) == set(tested)
    assert set(re.findall(r"^\| `(Weft\w+)` \|", PAGE.read_text(), re.M)) == set(alerts)


def test_document__has_the_rows_of_the_code():
    rows = re.findall(r"^\| `(weft_\w+)` \| (\w+) \| ([^|]*) \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(), re.M)
    assert {name: (kind, labels.strip().replace("`", "").replace(" ", "")) for name, kind, labels, _, _ in rows} == {
        name: (kind, labels) for name, (kind, labels, _) in families().items()}
    assert len(rows) == len(families())


# ---- wrong values ----

@pytest.mark.parametrize("flags,env,says", [
    (["--metrics", ":99999"], {}, "--metrics ':99999': the port is no number from 1 to 65535"),
    (["--metrics", "9464"], {}, "--metrics '9464': there is no ':' before a port; write ADDRESS:PORT or :PORT"),
    ([], {"WEFT_METRICS": "localhost:x"}, "WEFT_METRICS 'localhost:x': the port is no number"),
    (["--metrics", "IN-USE"], {}, "cannot listen there (give another port, or the same with '+' behind it"),
    (["--metrics-file", "/nowhere/x.prom"], {}, "--metrics-file '/nowhere/x.prom' (give a file in a folder that this process may"),
    ([], {"WEFT_METRICS_FILE": "/nowhere/x.prom"}, "WEFT_METRICS_FILE '/nowhere/x.prom'"),
])
def test_wrong_values__are_one_error_that_names_flag_value_and_what_to_do(tmp_path, models, flags, env, says):
    with socket.socket() as taken, Job(tmp_path, models["qwen2"], "world=1,source=gathered", "engines=1,tp=1") as job:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        flags = [flag.replace("IN-USE", f"127.0.0.1:{taken.getsockname()[1]}") for flag in flags]
        wrong = job.start("wrong", [CONTROLLER, "--train", job.train, "--infer", job.infer, "--bind", "tcp://127.0.0.1:0", *flags], env)
        assert job.wait(20)["wrong"] in (1, 78) and says in wrong.stderr and wrong.stderr.count("WEFT-E") == 1, wrong.stderr
        job.controller("--lost-after", "300ms", "--heartbeat", "100ms")
        worker = job.worker("trainer", 0, *flags, env=env)
        codes = job.wait(20)
        assert codes["trainer-0"] in (1, 78) and says.replace("--metrics-file '", "metrics_file (--metrics-file) '").replace(
            "--metrics '", "metrics (--metrics) '") in worker.stderr, worker.stderr
        assert worker.stderr.splitlines()[-1] in job.processes["controller"].stderr or codes["controller"] != 0


# ---- what it costs, and who may disturb ----

def threads(process):
    return sorted((ROOT / f"/proc/{process.popen.pid}/task/{task.name}/comm").read_text().strip()
                  for task in (ROOT / f"/proc/{process.popen.pid}/task").iterdir())


def listens(process):
    """TCP ports that the process listens at."""
    proc = ROOT / f"/proc/{process.popen.pid}"
    rows = [line.split() for name in ("tcp", "tcp6") for line in (proc / "net" / name).read_text().splitlines()[1:]]
    inodes = {row[9]: int(row[1].rsplit(":", 1)[1], 16) for row in rows if row[3] == "0A"}
    opened = {str(link.readlink()) for link in (proc / "fd").iterdir() if link.exists() or link.is_symlink()}
    return {port for inode, port in inodes.items() if f"socket:[{inode}]" in opened}


def storm(port, count=2000):
    """Connections that say nothing, half of a request, or garbage; all are held until the caller lets go."""
    held, said = [], (b"", b"GET /metr", b"\x16\x03\x01\0\0", b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 3)
    for number in range(count):
        one = socket.socket()
        one.settimeout(2)
        try:
            one.connect(("127.0.0.1", port))
            one.send(said[number % len(said)])
        except OSError:
            pass
        held.append(one)
    return held


def test_off__is_no_thread_and_no_port_and_a_storm_at_the_port_harms_nobody(tmp_path, models):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, limits[1]), limits[1]))
    try:
        with Job(tmp_path, models["qwen2"], "world=2,source=gathered", "engines=1,tp=1") as job:
            job.controller(*PORT, env=TALKS)
            job.worker("trainer", 0, *PORT, "--interval", "20ms", updates=100, env=TALKS)
            job.worker("trainer", 1, "--interval", "20ms", updates=100, env=TALKS)
            job.worker("inference", 0, *PORT, updates=100, env=TALKS)
            on, off = job.processes["trainer-0"], job.processes["trainer-1"]
            port_of(job.processes["inference-0"])
            while not off.updates() or not on.updates():
                assert off.code is None, job.said()
                time.sleep(0.01)
            assert listens(on) == {port_of(on)} and listens(off) == set()
            assert len(threads(on)) == len(threads(off)) + 1 and "MHD" not in " ".join(threads(off))
            held = [storm(port_of(job.processes[name]), count) for name, count in (("trainer-0", 2000), ("controller", 500))]
            assert on.code is None, "the storm was over after the job"
            job.succeed()
            for one in [one for some in held for one in some]:
                one.close()
            job.verify(expected(models["qwen2"], job.infer), (1, 100))
            longest = max(update["seconds"] for update in on.updates())
            assert longest < 2, f"an update took {longest} s beside the storm"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_several_workers_of_a_host__share_one_variable(tmp_path, models):
    first = prometheus.free_port()
    env = {**TALKS, "WEFT_METRICS": f"127.0.0.1:{first}+", "WEFT_METRICS_FILE": str(tmp_path / "%r.prom")}
    with Job(tmp_path / "job", models["qwen2"], "world=2,source=gathered", "engines=1,tp=1") as job:
        job.controller(env=env)
        job.workers(env=env)
        job.succeed()
        ports = set(ports_of_ended(job))
        assert len(ports) == 4 and all(first <= port < first + 64 for port in ports)
    files = {path.name: samples(path.read_text()) for path in tmp_path.glob("*.prom")}
    assert set(files) == {"controller.prom", "t0.prom", "t1.prom", "i0.prom"}
    assert files["controller.prom"]['weft_job_state{state="done"}'] == 1  # written a last time
    assert {files[name]["weft_weight_version"] for name in ("t0.prom", "t1.prom", "i0.prom")} == {2}


def ports_of_ended(job):
    for process in job.processes.values():
        yield int(re.search(r"metrics at http://[^ ]*:(\d+)/metrics", process.stderr)[1])


def test_failure__stands_in_the_last_file(tmp_path, models):
    with Job(tmp_path / "job", models["qwen2"], "world=1,source=gathered", "engines=1,tp=1") as job:
        job.controller("--metrics-file", tmp_path / "%r.prom", "--lost-after", "1s", "--heartbeat", "100ms")
        job.workers("--metrics-file", tmp_path / "%r.prom", updates=100000)
        while not job.processes["inference-0"].updates():
            time.sleep(0.01)
        job.kill("inference-0")
        assert job.wait(30)["trainer-0"] == 75
    trainer, controller = (samples((tmp_path / f"{who}.prom").read_text()) for who in ("t0", "controller"))
    assert trainer['weft_failures_total{code="WEFT-E131"}'] >= 1
    assert trainer['weft_sync_finished_total{result="failed"}'] == 1
    assert trainer["weft_sync_started_total"] == trainer['weft_sync_finished_total{result="ok"}'] + 1
    assert controller['weft_failures_total{code="WEFT-E131"}'] == 1 and controller['weft_job_state{state="failed"}'] == 1
    assert controller['weft_losses_total{of="inference",code="WEFT-E131"}'] == 1
