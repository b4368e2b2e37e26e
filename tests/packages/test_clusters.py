"""What clusters run: the container's entry, manifests of Kubernetes, Slurm's prolog and epilog."""
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import time

import pytest

from lab import mount_table
from lab.programs import REPOSITORY, run
from lab.system import wait_until, wait_until_gone

SCRIPTS = REPOSITORY / "mount-scripts"
SHELL = [SCRIPTS / "node.sh", SCRIPTS / "containers/serve-array",
         *(SCRIPTS / "slurm" / name for name in ("common.sh", "prolog", "epilog", "task-prolog", "slurm.example"))]
INSTALLED = pathlib.PurePath("/usr/libexec/fastpersistfs")
USERS = [pwd.getpwnam(name) for name in ("nobody", "daemon")]


# --- the shell --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_shell_syntax(script):
    run("sh", "-n", script)


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="needs shellcheck")
def test_shellcheck():
    """But for what it cannot know: variables and files that come from, or go to, a file that is sourced."""
    run("shellcheck", "--shell=sh", "--severity=warning", "--exclude=SC1090,SC1091,SC2034,SC2154", *SHELL)


# --- Kubernetes -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def manifests():
    """By kind."""
    yaml = pytest.importorskip("yaml")
    return {document["kind"]: document for path in sorted((SCRIPTS / "kubernetes").glob("*.yaml"))
            for document in yaml.safe_load_all(path.read_text())}


def bytes_of(text):
    units = {"Gi": 1 << 30, "Mi": 1 << 20, "G": 1 << 30, "M": 1 << 20}  # ours are powers of 1024, too
    unit = next(unit for unit in units if text.endswith(unit))
    return int(text.removesuffix(unit)) * units[unit]


def test_manifests_fit_the_schemas(manifests):
    validate = pytest.importorskip("kubernetes_validate")
    for document in manifests.values():
        validate.validate(document, "1.30", strict=True)


def test_the_mount_of_the_pod_reaches_the_node_and_other_pods(manifests):
    """The volume is the directory above the mount point, on both sides: a mount that is made anew must come through."""
    point = pathlib.PurePath(manifests["ConfigMap"]["data"]["MOUNT_POINT"])
    daemons, pod = manifests["DaemonSet"]["spec"]["template"]["spec"], manifests["Pod"]["spec"]
    sides = [(daemons, daemons["containers"], "Bidirectional"),
             (pod, pod["containers"] + pod["initContainers"], "HostToContainer")]
    for spec, containers, propagation in sides:
        host = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
        for container in containers:
            mount, = [mount for mount in container["volumeMounts"] if host[mount["name"]] == str(point.parent)]
            assert mount["mountPath"] == str(point.parent) and mount["mountPropagation"] == propagation
    assert str(point) in str(pod["initContainers"][0]["command"])
    assert pod["nodeSelector"] == daemons["nodeSelector"]


def test_the_pod_of_the_daemon_has_what_it_needs(manifests):
    data, daemons = manifests["ConfigMap"]["data"], manifests["DaemonSet"]["spec"]
    spec = daemons["template"]["spec"]
    daemon, = spec["containers"]
    assert daemon["securityContext"]["privileged"] and spec["hostPID"]
    assert daemons["updateStrategy"]["type"] == "OnDelete"
    assert daemons["selector"]["matchLabels"].items() <= daemons["template"]["metadata"]["labels"].items()
    assert daemon["envFrom"][0]["configMapRef"]["name"] == manifests["ConfigMap"]["metadata"]["name"]
    assert {manifests[kind]["metadata"]["namespace"] for kind in ("ConfigMap", "DaemonSet")} == {
        manifests["Namespace"]["metadata"]["name"]}
    mounts = {mount["mountPath"] for mount in daemon["volumeMounts"]}
    assert "/dev/fuse" in mounts
    assert all(str(pathlib.PurePath(member).parent) in mounts for member in data["DIRS"].split(":"))
    assert data["INIT"] == "no" and "allow_other" in data["OPTIONS"].split(",")
    # A drive that hangs holds the end up for twice io_timeout (120 s).
    assert spec["terminationGracePeriodSeconds"] > int(data["STOP_WAIT"]) + 240
    buffers = next(option for option in data["OPTIONS"].split(",") if option.startswith("buffer_memory="))
    assert bytes_of(daemon["resources"]["requests"]["memory"]) >= 3 * bytes_of(buffers.split("=")[1])
    for place in (daemon["startupProbe"], daemon["readinessProbe"], daemon["livenessProbe"],
                  daemon["lifecycle"]["preStop"]):
        program, verb = place["exec"]["command"]
        script = SCRIPTS / pathlib.PurePath(program).relative_to(INSTALLED)
        assert os.access(script, os.X_OK) and f"\n  {verb})" in script.read_text()
        # state_of gives up after 30 s.
        assert place.get("timeoutSeconds", 60) > 35


# --- the container's entry --------------------------------------------------------------------------------------------


@pytest.fixture
def environment(binaries):
    """Nothing but what the caller sets, and the programs under test."""
    return {"PATH": f"{binaries.build}/fs:{binaries.build}/tools:/usr/sbin:/usr/bin:/sbin:/bin"}


def options_of(array):
    return "allow_other" + ("" if array.direct_io else ",buffered_members")


class Pod:
    """serve-array as a container runs it: its process, and other calls of it beside (probes, preStop)."""

    def __init__(self, array, point, environment, prefix=()):
        self.point, self.prefix, self.daemon = point, list(prefix), None
        self.environment = {**environment, "DIRS": array.argument, "OPTIONS": options_of(array),
                            "MOUNT_POINT": str(point), "STOP_WAIT": "1"}

    def call(self, verb, check=True):
        return run(SCRIPTS / "containers/serve-array", verb, env=self.environment, check=check)

    def start(self):
        self.daemon = subprocess.Popen([*self.prefix, SCRIPTS / "containers/serve-array"], env=self.environment,
                                       stdin=subprocess.DEVNULL)
        wait_until(lambda: self.call("ready", check=False).returncode == 0)
        return self

    def kill(self):
        self.daemon.kill()
        self.daemon.wait()

    def destroy(self):
        if self.daemon:
            self.kill()
        for place in (self.point, self.point.parent):
            while mount_table.entry_of(place):
                mount_table.unmount(place, lazy=True)
        subprocess.run(["chattr", "-i", str(self.point)], capture_output=True)


@pytest.fixture
def pod(make_array, lab, environment, numbers):
    array = make_array()
    made = Pod(array, lab / f"pod{next(numbers)}/ckpt", environment)
    made.point.parent.mkdir()
    yield made
    made.destroy()
    array.assert_clean()
    shutil.rmtree(made.point.parent)


def is_immutable(directory):
    listed = run("lsattr", "-d", directory, check=False).stdout.split()
    return bool(listed) and "i" in listed[0]


@pytest.mark.root
@pytest.mark.P1
def test_a_container_that_is_killed_and_started_again(pod):
    assert pod.call("ready", check=False).returncode == 1
    pod.start()
    pod.call("alive")
    (pod.point / "model").write_bytes(b"content" * 100_000)
    pod.kill()
    assert pod.call("alive", check=False).returncode == 1
    with pytest.raises(OSError):
        (pod.point / "model").read_bytes()
    pod.start()
    assert (pod.point / "model").read_bytes() == b"content" * 100_000

    # Ended in order: whoever has a file open is waited for, for a while.
    with open(pod.point / "log", "wb") as held:
        held.write(b"one")
        refused = pod.call("stop", check=False)
        assert refused.returncode == 1 and "in use" in refused.stderr, refused.stderr
        pod.call("ready")
    pod.call("stop")
    assert pod.daemon.wait(timeout=60) == 0 and not mount_table.entry_of(pod.point)
    pod.call("stop")
    # Not even root fills the node's drive meanwhile.
    if is_immutable(pod.point):
        with pytest.raises(PermissionError):
            (pod.point / "model").write_bytes(b"on the drive of the node")

    pod.start()
    assert (pod.point / "log").read_bytes() == b"one"
    pod.daemon.send_signal(signal.SIGTERM)
    assert pod.daemon.wait(timeout=60) == 0 and not mount_table.entry_of(pod.point)


@pytest.mark.root
def test_a_container_without_members_says_so(pod):
    del pod.environment["DIRS"]
    result = pod.call("serve", check=False)
    assert result.returncode == 1 and "DIRS" in result.stderr
    assert pod.call("bogus", check=False).returncode == 16


@pytest.mark.root
@pytest.mark.alone
def test_other_pods_see_the_mount_come_and_go(pod):
    """Propagation as Kubernetes has it: the daemon's namespace shares the directory above the mount, another one
    receives. What a daemon that was killed left there goes with the next one, in every namespace."""
    shared = pod.point.parent
    run("mount", "--bind", shared, shared)
    run("mount", "--make-shared", shared)
    namespace = ["unshare", "--mount", "--propagation"]
    pod.prefix = [*namespace, "unchanged"]
    # Answers a line by what it finds in the mount, for as long as it lives.
    script = f'while read -r line; do cat {pod.point}/model 2>&1 || true; done'
    consumer = subprocess.Popen([*namespace, "slave", "sh", "-c", script], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True, env={"LC_ALL": "C", "PATH": os.environ["PATH"]})

    def seen():
        consumer.stdin.write("\n")
        consumer.stdin.flush()
        return consumer.stdout.readline()

    try:
        assert "No such file" in seen()
        pod.start()
        (pod.point / "model").write_text("first\n")
        assert seen() == "first\n"
        pod.kill()
        assert "endpoint is not connected" in seen()
        pod.start()
        assert seen() == "first\n"
        pod.call("stop")
        assert pod.daemon.wait(timeout=60) == 0
        assert "No such file" in seen()
    finally:
        consumer.kill()
        consumer.wait()


# --- Slurm ------------------------------------------------------------------------------------------------------------


class Node:
    """A node of Slurm: its configuration, and what slurmd runs there. The scripts lie where any user reaches them."""

    def __init__(self, directory, environment, **settings):
        self.point = directory / "ckpt"
        self.scripts = directory / "installed/slurm"
        shutil.copytree(SCRIPTS / "slurm", self.scripts, dirs_exist_ok=True)
        shutil.copy(SCRIPTS / "node.sh", self.scripts.parent)
        self.configuration = directory / "slurm"
        self.environment = {**environment, "FPFS_SLURM_CONFIGURATION": str(self.configuration),
                            "FPFS_SLURM_STATE": str(directory / "state"), "SLURMD_NODENAME": "node1"}
        self.configuration.write_text("".join(f"{name}={value}\n" for name, value in
                                              {"MOUNT_POINT": self.point, "WAIT": 2, **settings}.items()))

    def start(self, script, job, user=USERS[0]):
        environment = {**self.environment, "SLURM_JOB_ID": str(job), "SLURM_JOB_UID": str(user.pw_uid),
                       "SLURM_JOB_USER": user.pw_name}
        return subprocess.Popen([self.scripts / script], env=environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                user=user.pw_uid if script == "task-prolog" else None)

    def run(self, script, job, user=USERS[0]):
        """Exit status, and what it said."""
        process = self.start(script, job, user)
        said, errors = process.communicate(timeout=60)
        return process.returncode, said + errors

    def job(self, script, user=USERS[0]):
        """A process of the job, which finds its directory as Slurm would tell it."""
        status, said = self.run("task-prolog", 1, user)
        assert status == 0 and said.startswith("export FPFS_CHECKPOINTS="), said
        return subprocess.Popen(["sh", "-euc", f"{said}cd $FPFS_CHECKPOINTS; {script}"], user=user.pw_uid,
                                group=user.pw_gid, extra_groups=[], stdin=subprocess.PIPE, text=True)


@pytest.fixture
def node(lab, environment, numbers):
    """node(**settings); what is mounted there is unmounted after the test."""
    directory = lab / f"node{next(numbers)}"
    directory.mkdir(mode=0o755)
    nodes = []

    def make(**settings):
        nodes.append(Node(directory, environment, **settings))
        return nodes[-1]

    yield make
    while mount_table.entry_of(directory / "ckpt"):
        mount_table.unmount(directory / "ckpt", lazy=True)
    shutil.rmtree(directory)


def writing(node, user):
    """A process of the job in the middle of a save: more than a chunk at a time is no log, which sync commits."""
    saver = node.job("echo whole >closed; exec dd of=open bs=1M iflag=fullblock status=none", user)
    saver.stdin.write("x" * (5 << 20))
    saver.stdin.flush()
    open_file = node.point / user.pw_name / "open"
    wait_until(lambda: open_file.exists() and open_file.stat().st_size == 5 << 20)
    return saver


@pytest.mark.root
def test_two_jobs_at_once(node, make_array):
    """The first of two mounts, the last one unmounts; each finds a directory of its own."""
    array = make_array()
    here = node(MOUNTED_BY="jobs", DIRS=array.argument, OPTIONS=options_of(array))
    prologs = [here.start("prolog", job, user) for job, user in enumerate(USERS, 1)]
    for prolog in prologs:
        said = prolog.communicate(timeout=60)
        assert prolog.returncode == 0, said
    assert len([entry for entry in mount_table.entries() if entry.path == str(here.point)]) == 1
    for user in USERS:
        assert here.job("echo content >model", user).wait(timeout=30) == 0
        directory = os.stat(here.point / user.pw_name)
        assert (directory.st_uid, directory.st_gid, directory.st_mode & 0o7777) == (user.pw_uid, user.pw_gid, 0o700)
    assert here.job(f"cat ../{USERS[0].pw_name}/model 2>/dev/null", USERS[1]).wait(timeout=30) != 0

    assert here.run("epilog", 1) == (0, "")
    assert mount_table.entry_of(here.point)
    assert here.run("epilog", 2, USERS[1]) == (0, "")
    assert not mount_table.entry_of(here.point)
    array.assert_clean()
    # Slurm may try an epilog again.
    assert here.run("epilog", 2, USERS[1]) == (0, "")
    # What a user saved is there for the next job.
    assert here.run("prolog", 3) == (0, "")
    assert (here.point / USERS[0].pw_name / "model").read_text() == "content\n"
    assert here.run("epilog", 3) == (0, "")


@pytest.mark.root
@pytest.mark.P4
def test_the_epilog_of_a_killed_job(binaries, node, make_array):
    """Processes that are on their way out are waited for. Who stays is named, and the mount with them."""
    array = make_array()
    settings = {"MOUNTED_BY": "jobs", "DIRS": array.argument, "OPTIONS": options_of(array)}
    here = node(**settings, WAIT=1)
    saver = None
    try:
        assert here.run("prolog", 1) == (0, "")
        saver = writing(here, USERS[0])
        status, said = here.run("epilog", 1)
        assert status == 1 and f"still open for writing, and not committed: {here.point}/nobody/open" in said, said
        assert "in use" in said and mount_table.entry_of(here.point)

        here = node(**settings, WAIT=30)
        assert here.run("prolog", 2) == (0, "")
        epilog = here.start("epilog", 2)
        time.sleep(0.5)
        assert epilog.poll() is None
        saver.kill()
        said = epilog.communicate(timeout=60)
        assert epilog.returncode == 0, said
    finally:
        if saver:
            saver.kill()
            saver.wait()
            saver.stdin.close()
    assert not mount_table.entry_of(here.point)
    array.assert_clean()

    # A daemon that dies under a job: its epilog says so, and the next job has the array again.
    assert here.run("prolog", 3) == (0, "")
    daemon = json.loads(run(binaries.fpfs, "status", "--json", here.point).stdout)["pid"]
    os.kill(daemon, signal.SIGKILL)
    wait_until_gone(daemon)
    status, said = here.run("epilog", 3)
    assert status == 1 and "no daemon answers" in said and not mount_table.entry_of(here.point), said
    assert here.run("prolog", 4) == (0, "")
    assert (here.point / "nobody/closed").read_text() == "whole\n"
    assert here.run("epilog", 4) == (0, "")


@pytest.mark.root
def test_a_file_of_another_job_is_not_ones_own(node, make_array):
    """An epilog is not held up by what other jobs on the node have open."""
    array = make_array()
    here = node(MOUNTED_BY="jobs", DIRS=array.argument, OPTIONS=options_of(array), WAIT=30)
    for job, user in enumerate(USERS, 1):
        assert here.run("prolog", job, user) == (0, "")
    other = writing(here, USERS[1])
    try:
        began = time.monotonic()
        assert here.run("epilog", 1) == (0, "")
        assert time.monotonic() - began < 20
    finally:
        other.kill()
        other.wait()
        other.stdin.close()
    assert here.run("epilog", 2, USERS[1]) == (0, "")


@pytest.mark.root
def test_formatting_is_for_those_who_ask(node, drives):
    members = [path / "slurm" for path in drives.paths]
    settings = {"MOUNTED_BY": "jobs", "DIRS": ":".join(map(str, members)),
                "OPTIONS": "allow_other" + ("" if drives.direct_io else ",buffered_members")}
    try:
        status, said = node(**settings).run("prolog", 1)
        assert status == 1 and "job 1: " in said and not (members[0] / "superblock").exists(), said
        here = node(**settings, FORMAT="yes", DIRECTORY="job", VARIABLE="CKPT")
        assert here.run("prolog", 1) == (0, "")
        assert here.run("task-prolog", 1) == (0, f"export CKPT={here.point}/job-1\n")
        assert os.stat(here.point / "job-1").st_uid == USERS[0].pw_uid
        assert here.run("epilog", 1) == (0, "")
    finally:
        for member in members:
            shutil.rmtree(member, ignore_errors=True)


@pytest.mark.root
def test_an_array_that_the_node_keeps(node, make_array, make_mount):
    """The prolog only looks: nothing mounted, or nobody answering, is a refusal; the epilog leaves it mounted."""
    mount = make_mount(make_array(), "allow_other")
    here = node(MOUNT_POINT=mount.path)
    assert here.run("prolog", 1) == (0, "")
    (mount.path / "nobody/model").write_text("content")
    assert here.run("epilog", 1) == (0, "")
    assert mount_table.entry_of(mount.path)

    assert here.run("prolog", 2) == (0, "")
    mount.process.kill()
    mount.process.wait()
    status, said = here.run("epilog", 2)
    assert status == 1 and "job 2: " in said and "no daemon answers" in said, said
    status, said = here.run("prolog", 3)
    assert status == 1 and "no daemon answers" in said, said
    assert mount_table.entry_of(mount.path)
    mount_table.unmount(mount.path, lazy=True)
    status, said = here.run("prolog", 4)
    assert status == 1 and "nothing is mounted" in said, said
    mount.process = None
    mount.start()
    assert (mount.path / "nobody/model").read_text() == "content"


@pytest.mark.root
def test_a_directory_that_somebody_else_has_made(node, make_array, make_mount, tmp_path):
    mount = make_mount(make_array(), "allow_other")
    here = node(MOUNT_POINT=mount.path)
    (mount.path / "nobody").symlink_to(tmp_path)
    status, said = here.run("prolog", 1)
    assert status == 1 and "is no directory" in said, said
    (mount.path / "nobody").unlink()
    (mount.path / "nobody").mkdir()
    os.chown(mount.path / "nobody", USERS[1].pw_uid, -1)
    status, said = here.run("prolog", 1)
    assert status == 1 and "belongs to user" in said, said
    assert os.stat(tmp_path).st_uid == 0


@pytest.mark.parametrize("settings, words", [
    ({"MOUNTED_BY": "me"}, "must be node or jobs"), ({"DIRECTORY": "mine"}, "must be user or job"),
    ({"MOUNT_POINT": ""}, "no MOUNT_POINT"), ({"FORMAT": "true"}, "must be yes or no"),
    ({"MOUNTED_BI": "jobs", "DIRECTORY": "mine"}, "must be user or job")])
def test_wrong_configurations(node, settings, words, tmp_path):
    """Said to slurmd and to the system's log: the node is drained for it."""
    here = node(**settings)
    logger = tmp_path / "bin" / "logger"
    logger.parent.mkdir()
    logger.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/log\n')
    logger.chmod(0o755)
    here.environment["PATH"] = f"{logger.parent}:{here.environment['PATH']}"
    for script in ("prolog", "epilog"):
        status, said = here.run(script, 1)
        assert status == 1 and words in said, said
        assert ("MOUNTED_BI is not known" in (tmp_path / "log").read_text()) == ("MOUNTED_BI" in settings)
        assert f"fastpersistfs-{script}" in (logged := (tmp_path / "log").read_text().splitlines()[-1]) and words in logged
    here.environment["FPFS_SLURM_CONFIGURATION"] = "/nonexistent"
    assert "cannot be read" in here.run("prolog", 1)[1]
