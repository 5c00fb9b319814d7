# SPDX-License-Identifier: Apache-2.0
"""What no schema says of manifests: rules of the kind that kube-linter has, and those of weft's own pods."""
import re


def pods(documents):
    """(name, kind of the object that makes it, template) of every pod."""
    for one in documents:
        name, kind, spec = one["metadata"]["name"], one["kind"], one.get("spec", {})
        if kind in ("Job", "StatefulSet"):
            yield name, kind, spec["template"]
        elif kind == "JobSet":
            for job in spec["replicatedJobs"]:
                yield f"{name}-{job['name']}", "Job", job["template"]["spec"]["template"]
        elif kind == "LeaderWorkerSet":
            yield name, kind, spec["leaderWorkerTemplate"]["workerTemplate"]


def jobs(documents):
    for one in documents:
        if one["kind"] == "Job":
            yield one["metadata"]["name"], one["spec"]
        elif one["kind"] == "JobSet":
            for job in one["spec"]["replicatedJobs"]:
                yield f"{one['metadata']['name']}-{job['name']}", job["template"]["spec"]


def containers(template):
    return [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]


def each_container(documents):
    for name, _, template in pods(documents):
        for container in containers(template):
            yield f"{name}/{container['name']}", template["spec"], container


def of_kind(documents, kind):
    return [one for one in documents if one["kind"] == kind]


def matches(selector, labels):
    for row in selector.get("matchExpressions", []):
        if row["operator"] != "In" or labels.get(row["key"]) not in row["values"]:
            return False
    wanted = selector.get("matchLabels", {})
    return all(labels.get(key) == value for key, value in wanted.items())


def user(pod, container):
    return {**pod.get("securityContext", {}), **container.get("securityContext", {})}


def image_has_a_version(documents):
    for name, _, container in each_container(documents):
        tag = container["image"].rpartition("/")[2].partition(":")[2]
        if not tag or tag == "latest":
            yield f"{name}: {container['image']}"


def requests_equal_limits(documents):
    for name, _, container in each_container(documents):
        limits, requests = (container["resources"].get(what, {}) for what in ("limits", "requests"))
        if limits != requests or not {"cpu", "memory"} <= set(limits):
            yield f"{name}: {requests} and {limits}"
        for resource, amount in limits.items():
            if "/" in resource and not re.fullmatch(r"[1-9]\d*", str(amount)):
                yield f"{name}: {resource} is {amount}, and extended resources are whole"


def no_rights_that_nobody_needs(documents):
    for name, pod, container in each_container(documents):
        context = container.get("securityContext", {})
        for key in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
            if pod.get(key):
                yield f"{name}: {key}"
        if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
            yield f"{name}: privileges"
        if context.get("readOnlyRootFilesystem") is not True:
            yield f"{name}: writes to its image"
        if context.get("capabilities", {}).get("drop") != ["ALL"]:
            yield f"{name}: keeps capabilities"
        if user(pod, container).get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{name}: no seccomp profile"
        if any("hostPath" in volume for volume in pod.get("volumes", [])):
            yield f"{name}: hostPath"


def root_only_to_lock_memory(documents):
    """IPC_LOCK has an effect for root alone, so the two go together or not at all."""
    for name, pod, container in each_container(documents):
        who, added = user(pod, container), container["securityContext"].get("capabilities", {}).get("add", [])
        root = who.get("runAsUser") == 0 and who.get("runAsNonRoot") is False
        if not root and not (who.get("runAsNonRoot") is True and who.get("runAsUser", 0) > 0):
            yield f"{name}: may be root or not: {who}"
        if added != (["IPC_LOCK"] if root else []):
            yield f"{name}: {'root' if root else 'not root'} and {added}"


def rdma_locks_memory(documents):
    (job,) = of_kind(documents, "ConfigMap")
    for name, pod, container in each_container(documents):
        if "verbs" in job["data"].get("WEFT_TRANSPORT", "") and container["name"] == "worker":
            devices = [key for key in container["resources"]["limits"] if "/" in key] + container["resources"].get("claims", [])
            if not devices:
                yield f"{name}: verbs without a device"
            if user(pod, container).get("runAsUser") != 0:
                yield f"{name}: verbs without the right to lock memory"


def the_key_is_a_file_of_a_secret(documents):
    if of_kind(documents, "Secret"):
        yield "a Secret among the manifests"
    for name, pod, container in each_container(documents):
        for row in container.get("env", []):
            if "secretKeyRef" in row.get("valueFrom", {}):
                yield f"{name}: {row['name']} shows a secret to every child process"
        if container in pod["containers"]:
            (volume,) = [one for one in pod["volumes"] if one["name"] == "key"]
            (mount,) = [one for one in container["volumeMounts"] if one["name"] == "key"]
            (item,) = volume["secret"]["items"]
            row = {one["name"]: one.get("value") for one in container["env"]}
            if row.get("WEFT_KEY_FILE") != f"{mount['mountPath']}/{item['path']}" or not mount.get("readOnly"):
                yield f"{name}: WEFT_KEY_FILE is not the mounted key"
            if volume["secret"].get("defaultMode") != 0o440 or "fsGroup" not in pod["securityContext"]:
                yield f"{name}: weft refuses a key that others may read, and fsGroup makes it readable"


def each_role_has_its_own_key(documents):
    wanted = {"controller": "job.key", "trainer": "trainer.key", "engine": "inference.key"}
    for name, _, template in pods(documents):
        role = template["metadata"]["labels"].get("app.kubernetes.io/component")
        (volume,) = [one for one in template["spec"]["volumes"] if one["name"] == "key"]
        if volume["secret"]["items"][0]["key"] != wanted.get(role):
            yield f"{name}: {role} has {volume['secret']['items'][0]['key']}"


def no_token_of_the_cluster(documents):
    accounts = {one["metadata"]["name"] for one in of_kind(documents, "ServiceAccount") if one.get("automountServiceAccountToken") is False}
    for name, _, template in pods(documents):
        spec = template["spec"]
        if spec.get("serviceAccountName") not in accounts or spec.get("automountServiceAccountToken") is not False:
            yield f"{name}: {spec.get('serviceAccountName')}"


def no_service_links(documents):
    for name, _, template in pods(documents):
        if template["spec"].get("enableServiceLinks") is not False:
            yield name


def names_before_readiness(documents):
    """Workers dial the controller, and trainers the engines, before anybody is ready."""
    for one in of_kind(documents, "Service"):
        if one["spec"].get("clusterIP") != "None" or not one["spec"].get("publishNotReadyAddresses"):
            yield one["metadata"]["name"]
    for one in of_kind(documents, "JobSet"):
        network = one["spec"].get("network", {})
        if not network.get("publishNotReadyAddresses") or not network.get("enableDNSHostnames") or "startupPolicy" in one["spec"] \
                or any("dependsOn" in job for job in one["spec"]["replicatedJobs"]):
            yield one["metadata"]["name"]


def selectors_select(documents):
    labels = [template["metadata"]["labels"] for _, _, template in pods(documents)]
    for one in of_kind(documents, "Service"):
        if not any(matches({"matchLabels": one["spec"]["selector"]}, row) for row in labels):
            yield f"Service {one['metadata']['name']}"
    for one in of_kind(documents, "NetworkPolicy"):
        if not any(matches(one["spec"]["podSelector"], row) for row in labels):
            yield f"NetworkPolicy {one['metadata']['name']}"
    for one in of_kind(documents, "StatefulSet"):
        if not matches(one["spec"]["selector"], one["spec"]["template"]["metadata"]["labels"]):
            yield f"StatefulSet {one['metadata']['name']}"
        if one["spec"]["serviceName"] not in {service["metadata"]["name"] for service in of_kind(documents, "Service")}:
            yield f"StatefulSet {one['metadata']['name']}: no Service {one['spec']['serviceName']}"


def ports_are_let_in(documents):
    """Every pod is under a policy, and the policy has the ports that it listens at."""
    for name, _, template in pods(documents):
        mine = [one["spec"] for one in of_kind(documents, "NetworkPolicy")
                if matches(one["spec"]["podSelector"], template["metadata"]["labels"])]
        if len(mine) != 1 or mine[0]["policyTypes"] != ["Ingress"]:
            yield f"{name}: {len(mine)} policies"
            continue
        (rule,) = mine[0]["ingress"]
        if not all(matches(row["podSelector"], template["metadata"]["labels"]) and set(row) == {"podSelector"} for row in rule["from"]):
            yield f"{name}: lets in others than its own job"
        open_ports = {(row["port"], row.get("endPort", row["port"])) for row in rule["ports"]}
        for container in template["spec"]["containers"]:
            wanted = {(port["containerPort"], port["containerPort"]) for port in container.get("ports", [])}
            ports = {row["name"]: row.get("value") for row in container["env"]}.get("WEFT_TCP_PORTS")
            if ports:
                wanted.add(tuple(map(int, ports.split("-"))))
            if wanted != open_ports:
                yield f"{name}: listens at {wanted}, let in {open_ports}"


def probes_are_there(documents):
    for name, _, template in pods(documents):
        role = template["metadata"]["labels"]["app.kubernetes.io/component"]
        for container in template["spec"]["containers"]:
            for probe in ["livenessProbe"] + ["readinessProbe"] * (role != "trainer"):
                if probe not in container:
                    yield f"{name}: no {probe}"
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                port = container.get(probe, {}).get("tcpSocket", {}).get("port")
                if port and port not in {row["name"] for row in container.get("ports", [])}:
                    yield f"{name}: {probe} asks port {port}"


def stops_are_waited_for(documents):
    for name, _, template in pods(documents):
        if template["spec"].get("terminationGracePeriodSeconds", 0) < 10:
            yield name


def roles_are_spread(documents):
    for name, _, template in pods(documents):
        labels = template["metadata"]["labels"]
        spread = template["spec"].get("topologySpreadConstraints", [])
        if labels["app.kubernetes.io/component"] != "controller" and not any(
                row["topologyKey"] == "kubernetes.io/hostname" and matches(row["labelSelector"], labels) for row in spread):
            yield name


def jobs_replace_pods(documents):
    """Codes that the next try would repeat end a Job; others make another pod for the same index, when the last one is gone."""
    for name, spec in jobs(documents):
        policy = spec.get("podFailurePolicy", {}).get("rules", [])
        if {"operator": "In", "values": [2, 78]} not in [row.get("onExitCodes") for row in policy if row["action"] == "FailJob"]:
            yield f"{name}: goes on after a bad configuration"
        if not any(row["action"] == "Ignore" and row.get("onPodConditions") == [{"type": "DisruptionTarget", "status": "True"}]
                   for row in policy):
            yield f"{name}: counts drained nodes"
        if spec.get("podReplacementPolicy") != "Failed":
            yield f"{name}: two pods of one rank"
        if spec.get("completionMode") != "Indexed" or spec["completions"] != spec["parallelism"]:
            yield f"{name}: not a pod for each index"
        if spec["template"]["spec"]["restartPolicy"] != "Never":
            yield f"{name}: restartPolicy"


def variables_are_said_once(documents):
    (job,) = of_kind(documents, "ConfigMap")
    for name, _, container in each_container(documents):
        own = [row["name"] for row in container.get("env", [])]
        twice = {key for key in own if own.count(key) > 1} | (set(own) & set(job["data"]))
        if twice:
            yield f"{name}: {sorted(twice)}"
        for row in container.get("envFrom", []):
            if row != {"configMapRef": {"name": job["metadata"]["name"]}}:
                yield f"{name}: {row}"


def volumes_are_mounted(documents):
    for name, _, template in pods(documents):
        there = {one["name"] for one in template["spec"].get("volumes", [])}
        mounted = {one["name"] for container in containers(template) for one in container.get("volumeMounts", [])}
        if there != mounted:
            yield f"{name}: {sorted(there ^ mounted)}"
        for one in template["spec"].get("volumes", []):
            if "emptyDir" in one and "sizeLimit" not in one["emptyDir"]:
                yield f"{name}: {one['name']} may grow"


def claims_are_made_from_templates(documents):
    there = {one["metadata"]["name"] for one in of_kind(documents, "ResourceClaimTemplate")}
    used = set()
    for name, _, template in pods(documents):
        claims = {row["name"]: row["resourceClaimTemplateName"] for row in template["spec"].get("resourceClaims", [])}
        wanted = {row["name"] for container in containers(template) for row in container["resources"].get("claims", [])}
        used |= set(claims.values())
        if set(claims) != wanted:
            yield f"{name}: {claims} and {wanted}"
    if used != there:
        yield f"{sorted(used ^ there)}"


RULES = [image_has_a_version, requests_equal_limits, no_rights_that_nobody_needs, root_only_to_lock_memory, rdma_locks_memory,
         the_key_is_a_file_of_a_secret, each_role_has_its_own_key, no_token_of_the_cluster, no_service_links, names_before_readiness,
         selectors_select, ports_are_let_in, probes_are_there, stops_are_waited_for, roles_are_spread, jobs_replace_pods,
         variables_are_said_once, volumes_are_mounted, claims_are_made_from_templates]


def broken(documents):
    """"rule: where" of all that is wrong."""
    return [f"{rule.__name__}: {found}" for rule in RULES for found in rule(documents)]
