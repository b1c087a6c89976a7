"""What lies under deploy/ is what Slurm, Kubernetes, Ray and Docker read, and holds no secret.

Its command lines, and those of its guides, are ones that elsa-tune takes. The job itself is tested
by tests/integration/test_slurm.py, the MLflow server by test_compose.py beside it.
"""

from __future__ import annotations

import copy
import functools
import gzip
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer.main
import yaml
from ray._private.ray_constants import DEFAULT_OBJECT_STORE_MEMORY_PROPORTION
from ray.autoscaler._private.util import prepare_config, validate_config

from elsa_tune.cli.app import app
from elsa_tune.searching.jobs.submitting import DEFAULT_PLACE

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
YAML_FILES = sorted(str(file.relative_to(DEPLOY)) for file in DEPLOY.rglob("*.yaml"))
SEARCH = "kubernetes/search.yaml"
# typer's base of what a command line can have wrong; it exports the classes below it.
UsageError = typer.BadParameter.__bases__[0]
SECRET = re.compile("password|secret|token|access_key", re.I)
GUIDES = ("cluster", "slurm", "kubernetes", "cloud", "mlflow-server")


@functools.cache
def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def parse(command_line: str) -> None:
    """Have our command line read what is written, without doing it.

    Raises UsageError for a command, an option or a value that it does not know.
    """
    words = shlex.split(command_line)
    assert words.pop(0) == "elsa-tune", command_line
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name = words.pop(0)
        if name not in command.commands:
            raise UsageError(f"no command {name}")
        command = command.commands[name]
    command.make_context("elsa-tune", words)


def values(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value that is no list or mapping, with the names that lead to it."""
    if isinstance(document, dict):
        for name, inner in document.items():
            yield from values(inner, f"{path}/{name}")
    elif isinstance(document, list):
        for number, inner in enumerate(document):
            yield from values(inner, f"{path}/{number}")
    else:
        yield path, document


def test_what_is_a_command_line_of_ours() -> None:
    parse("elsa-tune search --model bert_base --task rte")
    for wrong in ("search --model bert_base --task rte --gpu 1", "serch", "search --seeds many"):
        with pytest.raises(UsageError):
            parse(f"elsa-tune {wrong}")


# Kubernetes


def ray_job() -> dict[str, Any]:
    [job] = documents(SEARCH)
    return job


def test_the_entry_point_is_a_search_with_a_name_and_a_shared_record() -> None:
    entry_point = ray_job()["spec"]["entrypoint"]
    parse(entry_point)
    words = shlex.split(entry_point)
    assert words[:2] == ["elsa-tune", "search"] and "--name" in words
    # KubeRay puts it into a shell's line as it is.
    assert not re.search(r"[;&|<>$`'\"\\\n]", entry_point)
    storage = Path(words[words.index("--storage-path") + 1])
    head = ray_job()["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    [container] = head["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in head["volumes"]}
    claim = volumes[mounts[str(storage.parent)]]["persistentVolumeClaim"]["claimName"]
    [record] = documents("kubernetes/record.yaml")
    assert claim == record["metadata"]["name"]
    assert record["spec"]["accessModes"] == ["ReadWriteMany"]


def test_a_search_may_lose_every_spot_node_and_go_on() -> None:
    cluster = ray_job()["spec"]["rayClusterSpec"]
    groups = {group["groupName"]: group for group in cluster["workerGroupSpecs"]}
    assert groups["gpu"]["minReplicas"] == 1 and groups["gpu-spot"]["minReplicas"] == 0
    assert cluster["enableInTreeAutoscaling"] and cluster["authOptions"] == {"mode": "token"}
    assert cluster["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    for group in groups.values():
        [container] = group["template"]["spec"]["containers"]
        needs = container["resources"]
        assert needs["limits"]["nvidia.com/gpu"] == "1"
        assert group["rayStartParams"]["num-cpus"] == needs["requests"]["cpu"]


def test_rays_objects_have_room_in_the_shared_memory_of_every_pod() -> None:
    """Ray would keep them on the container's disk, and say so in its log alone."""
    cluster = ray_job()["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        [limit] = [one["resources"]["limits"]["memory"] for one in pod["containers"]]
        [shared] = [one for one in pod["volumes"] if one["name"] == "shared-memory"]
        size = shared["emptyDir"]["sizeLimit"]
        share = DEFAULT_OBJECT_STORE_MEMORY_PROPORTION
        assert float(size.removesuffix("Gi")) > share * float(limit.removesuffix("Gi"))


def test_what_is_asked_for_by_name_is_there() -> None:
    objects = documents("kubernetes/mlflow.yaml") + documents("kubernetes/record.yaml")
    names = {(one["kind"], one["metadata"]["name"]) for one in objects}
    services = {name for kind, name in names if kind == "Service"}
    claims = {name for kind, name in names if kind == "PersistentVolumeClaim"}
    secrets = set()
    for file in ("kubernetes/mlflow.yaml", SEARCH):
        for path, value in values(documents(file)):
            if path.endswith("/claimName"):
                assert value in claims, path
            if path.endswith("/secretKeyRef/name"):
                secrets.add(value)
    assert secrets == {"elsa-tune-postgres", "elsa-tune-hub"}
    guide = (ROOT / "docs/guides/kubernetes.md").read_text()
    for secret in secrets:
        assert f"create secret generic {secret} " in guide
    head = ray_job()["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    [uri] = [one["value"] for one in head["env"] if one["name"] == "MLFLOW_TRACKING_URI"]
    host, port = re.fullmatch(r"http://([\w-]+):(\d+)", uri).groups()  # type: ignore[union-attr]
    assert host in services
    allowed = option(mlflow_command_on_kubernetes(), "--allowed-hosts").split(",")
    assert f"{host}:{port}" in allowed
    database = option(mlflow_command_on_kubernetes(), "--backend-store-uri")
    assert re.search(r"@([\w-]+):5432/", database).group(1) in services  # type: ignore[union-attr]


def ray_job_schema(file: Path) -> Any:
    """Return KubeRay's schema of a RayJob, with what it does not name forbidden."""
    with gzip.open(file, "rt") as text:
        definition = yaml.load(text, Loader=yaml.CSafeLoader)
    [version] = [one for one in definition["spec"]["versions"] if one["name"] == "v1"]
    return closed(version["schema"]["openAPIV3Schema"])


def closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(value) for name, value in schema.items()}
    is_open = inner.get("x-kubernetes-preserve-unknown-fields") or inner.get(
        "x-kubernetes-embedded-resource"
    )
    if isinstance(inner.get("properties"), dict) and inner.get("type") == "object" and not is_open:
        inner["additionalProperties"] = False
    return inner


@pytest.mark.thorough
def test_kuberay_takes_the_job(shared: Path) -> None:
    file = shared / "kuberay/ray.io_rayjobs.yaml.gz"
    if not file.is_file():
        pytest.skip("needs KubeRay's schema of a RayJob in ../shared/kuberay, which is not here")
    schema = ray_job_schema(file)
    # The schema leaves to Kubernetes what every object has.
    del schema["properties"]["metadata"]
    validator = jsonschema.Draft202012Validator(schema | {"additionalProperties": True})
    validator.validate(ray_job())
    for change in (
        {"entryPoint": "elsa-tune"},
        {"backoffLimit": "five"},
        {"rayClusterSpec": {"headGroupSpec": {}}},
    ):
        wrong = copy.deepcopy(ray_job())
        wrong["spec"] |= change
        assert not validator.is_valid(wrong), change


# A cloud


def test_ray_takes_the_cloud_configuration() -> None:
    [configuration] = documents("cloud/aws.yaml")
    prepared = prepare_config(copy.deepcopy(configuration))
    validate_config(prepared)
    types = prepared["available_node_types"]
    head = types[prepared["head_node_type"]]
    assert head["resources"]["CPU"] == 0 and "InstanceMarketOptions" not in head["node_config"]
    assert types["gpu"]["min_workers"] == 1
    assert types["gpu_spot"]["min_workers"] == 0
    assert types["gpu_spot"]["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    for name in ("gpu", "gpu_spot"):
        assert types[name]["node_config"]["ImageId"] == head["node_config"]["ImageId"]
    # Ray would add an installation of its own to each node.
    assert prepared["setup_commands"] == []
    wrong = copy.deepcopy(configuration)
    wrong["available_node_types"]["gpu"]["min_workers"] = "one"
    with pytest.raises(jsonschema.ValidationError):
        validate_config(prepare_config(wrong))


@pytest.mark.parametrize("which", ["head_start_ray_commands", "worker_start_ray_commands"])
def test_ray_start_takes_what_the_cloud_gives_it(which: str) -> None:
    from ray.scripts.scripts import start

    [configuration] = documents("cloud/aws.yaml")
    [command] = [one for one in configuration[which] if " start " in one]
    words = shlex.split(command)
    assert "RAY_AUTH_MODE=token" in words
    start.make_context("ray start", words[words.index("start") + 1 :])


def test_the_clouds_containers_get_the_gpus_of_their_machines() -> None:
    """Ray adds NVIDIA's runtime, which gives a container what this variable names.

    Base images with CUDA set it themselves.
    """
    dockerfile = (DEPLOY / "images/search.Dockerfile").read_text()
    base = re.search(r"^FROM (\S+)$", dockerfile, re.M)
    assert base is not None
    [configuration] = documents("cloud/aws.yaml")
    types = configuration["available_node_types"].values()
    assert any("GPU" in node["resources"] for node in types)
    if not re.search(r"-(cu\d|gpu)", base[1]):
        options = " ".join(configuration["docker"]["worker_run_options"])
        assert "-e NVIDIA_VISIBLE_DEVICES=all" in options
        capabilities = re.search(r"-e NVIDIA_DRIVER_CAPABILITIES=(\S+)", options)
        assert capabilities is not None and capabilities[1].split(",") == ["compute", "utility"]


def test_the_clouds_record_comes_home_into_a_folder_of_its_own() -> None:
    from ray.scripts.scripts import rsync_down

    guide = (ROOT / "docs/guides/cloud.md").read_text()
    copy_line = re.search(r"^ray rsync-down (.+)$", guide, re.M)
    assert copy_line is not None
    copied = rsync_down.make_context("ray rsync-down", shlex.split(copy_line[1])).params
    assert copied["source"] == DEFAULT_PLACE.replace("$HOME", "/home/ray") + "/"
    target = Path(copied["target"])
    assert target != Path("mlruns")  # of whoever types it
    # rsync makes the last folder of a path alone.
    assert f"\nmkdir -p {target.parent}\n{copy_line[0]}\n" in guide
    assert f"\nelsa-tune answer rte --storage-path {target}/searches\n" in guide


# An MLflow server


def mlflow_command_on_kubernetes() -> list[str]:
    [server] = [one for one in documents("kubernetes/mlflow.yaml") if one["kind"] == "Deployment"]
    command: list[str] = server["spec"]["template"]["spec"]["containers"][0]["command"]
    return command


def mlflow_command_of_compose() -> list[str]:
    command: list[str] = documents("compose.yaml")[0]["services"]["mlflow"]["command"]
    return command


def option(command: list[str], name: str) -> str:
    [value] = [word.removeprefix(f"{name}=") for word in command if word.startswith(f"{name}=")]
    return value


# MLflow's own, of its functions' types, when its command line is imported.
@pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning")
@pytest.mark.parametrize("command", [mlflow_command_on_kubernetes(), mlflow_command_of_compose()])
def test_mlflow_takes_its_options(command: list[str]) -> None:
    from mlflow.cli import server

    assert command[:2] == ["mlflow", "server"]
    server.make_context("mlflow server", command[2:])
    database = option(command, "--backend-store-uri")
    assert re.match(r"postgresql\+psycopg://mlflow@[\w-]+:5432/mlflow$", database)


def test_compose_is_whole_and_listens_on_this_machine_alone() -> None:
    [compose] = documents("compose.yaml")
    services = compose["services"]
    for name, service in services.items():
        assert "image" in service, name
        assert set(service.get("depends_on", ())) <= set(services), name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
        for volume in service.get("volumes", ()):
            assert volume.split(":")[0] in compose["volumes"], name
        for command in (service.get("command", ()), service.get("healthcheck", {}).get("test", ())):
            assert all(isinstance(word, str) for word in command), name
    assert [name for name, service in services.items() if "ports" in service] == ["mlflow"]
    compile(services["bucket"]["command"][2], "bucket", "exec")
    assert option(mlflow_command_of_compose(), "--artifacts-destination").startswith("s3://mlflow/")
    build = services["mlflow"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_what_compose_asks_of_its_environment_is_in_the_example() -> None:
    asked = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose.yaml").read_text()))
    lines = (DEPLOY / ".env.example").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert set(given) == asked
    assert not [name for name in given if "PASSWORD" in name and given[name]]
    ignored = subprocess.run(
        ["git", "check-ignore", "--quiet", "deploy/.env"], cwd=ROOT, check=False
    )
    assert ignored.returncode in (0, 128)  # 128: no checkout


# All of them


def literal_secrets(document: Any) -> Iterator[str]:
    """Yield the names of passwords, tokens and keys that are written out."""
    if isinstance(document, list):
        for inner in document:
            yield from literal_secrets(inner)
    if not isinstance(document, dict):
        return
    name = str(document.get("name"))
    if "value" in document and SECRET.search(name):
        yield name
    for key, inner in document.items():
        is_place = key.startswith("/")
        if not isinstance(inner, str):
            yield from literal_secrets(inner)
        elif SECRET.search(key) and not is_place and not inner.startswith("${"):
            yield key


@pytest.mark.parametrize("name", YAML_FILES)
def test_no_file_holds_a_secret(name: str) -> None:
    assert not re.search(r"://[^/@\s]*:[^/@\s]*@", (DEPLOY / name).read_text())
    for document in documents(name):
        assert document.get("kind") != "Secret"
        assert not list(literal_secrets(document))


def test_what_is_a_secret_written_out() -> None:
    for written in (
        {"env": [{"name": "PGPASSWORD", "value": "abc"}]},
        {"environment": {"AWS_SECRET_ACCESS_KEY": "abc"}},
    ):
        assert list(literal_secrets(written))
    for reference in (
        {"env": [{"name": "PGPASSWORD", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]},
        {"environment": {"AWS_SECRET_ACCESS_KEY": "${KEY:?give it}"}},
    ):
        assert not list(literal_secrets(reference))


def test_images_have_the_tested_versions() -> None:
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    search = (DEPLOY / "images/search.Dockerfile").read_text()
    assert f"FROM rayproject/ray:{pins['ray']}-py311\n" in search
    assert ray_job()["spec"]["rayClusterSpec"]["rayVersion"] == pins["ray"]
    for name in ("search", "mlflow"):
        assert "constraints.txt" in (DEPLOY / f"images/{name}.Dockerfile").read_text()
    sent = (DEPLOY / "images/search.Dockerfile.dockerignore").read_text()
    for name in re.findall(r"^!(.+)$", sent, re.M):
        assert (ROOT / name).exists(), name
    for package in ("mlflow", "psycopg"):
        assert package in pins


def test_the_job_of_slurm_is_a_script() -> None:
    script = DEPLOY / "slurm/search.sbatch"
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    directives = re.findall(r"^#SBATCH (.+)$", script.read_text(), re.M)
    assert {"--requeue", "--open-mode=append", "--signal=B:TERM@120"} <= set(directives)


def command_lines() -> Iterator[tuple[str, str]]:
    """Yield every line of our command line that a guide or a file has, with where it stands."""
    pages = [ROOT / f"docs/guides/{name}.md" for name in GUIDES]
    for page in [*pages, DEPLOY / "README.md"]:
        for block in re.findall(r"^```bash\n(.*?)^```", page.read_text(), re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                command = line.partition("#")[0].strip()
                if found := re.search(r"search\.sbatch (--.+)$", command):
                    yield page.name, f"elsa-tune search {found[1]}"
                elif found := re.search(r"(?:^| -- )(elsa-tune .+)$", command):
                    yield page.name, found[1]
    for found in re.finditer(
        r"search\.sbatch (--.+)$", (DEPLOY / "slurm/search.sbatch").read_text(), re.M
    ):
        yield "search.sbatch", f"elsa-tune search {found[1]}"


def test_the_guides_commands_are_ones_of_ours() -> None:
    found = list(command_lines())
    assert {page for page, _ in found} >= {f"{name}.md" for name in GUIDES}
    for page, line in found:
        try:
            parse(line)
        except UsageError as error:
            pytest.fail(f"{page}: {line}: {error.format_message()}")
