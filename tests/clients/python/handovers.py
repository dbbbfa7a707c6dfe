"""A set of three whose primary changes on purpose, again and again, beside a workload that is to notice nothing.

Usage: handovers.py COMMAND [ARGUMENT ...] (MUNIMENT_BINARY names the server's program)

The command is a workload over a driver with default options. It finds the set in MUNIMENT_URI, makes the
file `ready` in the directory MUNIMENT_HANDOVERS when its clients work, and ends soon after the file `done` is
there: with 0 if no operation failed and everything was done exactly once.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pymongo

LONG = os.environ.get("MUNIMENT_LONG") == "1"
STEP_DOWNS = 20 if LONG else 4
ROLLING_RESTARTS = 3 if LONG else 1
# The set's election timeout is the default, 10 s: a handover that needs one is none.
MOST_WITHOUT_PRIMARY = 5.0
NAME = "handovers"


def until(what, found, seconds=60):
    end = time.monotonic() + seconds
    while True:
        try:
            if result := found():
                return result
        except (pymongo.errors.PyMongoError, OSError):
            pass
        assert time.monotonic() < end, f"it never came: {what}"
        time.sleep(0.01)


class Member:
    def __init__(self, directory):
        self.directory, self.port, self.process = pathlib.Path(directory), 0, None
        self.directory.mkdir()

    def start(self):
        file = self.directory / "port"
        file.unlink(missing_ok=True)
        args = [os.environ["MUNIMENT_BINARY"], "serve", "--nounixsocket", "--replSet", NAME]
        args += ["--port", str(self.port), "--dbpath", str(self.directory / "db"), "--portFile", str(file)]
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(args, stdout=log, stderr=log)
        until("a member listens", lambda: file.exists() and file.read_text().strip() not in ("", "0"))
        self.port = int(file.read_text())

    def end(self, how=signal.SIGKILL):
        if self.process:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    def client(self):
        return pymongo.MongoClient(self.host, directConnection=True, serverSelectionTimeoutMS=100)

    def ask(self, command):
        with self.client() as c:
            return c.admin.command(command)


def primary(members):
    def found():
        running = [m for m in members if m.process]
        return next((m for m in running if m.ask("hello")["isWritablePrimary"]), None)

    return until("a primary", found)


def all_follow(members):
    """All are there, and have what the primary has."""

    def found():
        status = primary(members).ask("replSetGetStatus")["members"]
        states = sorted(m["stateStr"] for m in status)
        behind = max(m["optimeDate"] for m in status) - min(m["optimeDate"] for m in status)
        return states == ["PRIMARY", "SECONDARY", "SECONDARY"] and behind.total_seconds() <= 2

    until("all members follow", found)


class Gap(threading.Thread):
    """Looks how long there is no primary until there is another one than that before."""

    def __init__(self, members, before):
        super().__init__()
        self.others = [m for m in members if m is not before]
        self.before, self.took = before, None

    def run(self):
        clients = [m.client() for m in self.others]
        own = self.before.client()
        last = time.monotonic()
        end = last + 60
        while time.monotonic() < end:
            try:
                if own.admin.command("hello")["isWritablePrimary"]:
                    last = time.monotonic()
            except pymongo.errors.PyMongoError:
                pass
            if any(c.admin.command("hello")["isWritablePrimary"] for c in clients):
                self.took = time.monotonic() - last
                break
        for c in [own, *clients]:
            c.close()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, failed, *_):
        self.join()
        took = self.took
        assert failed or took is not None and took < MOST_WITHOUT_PRIMARY, f"there was no primary for {took} s"


def step_down(members):
    before = primary(members)
    with Gap(members, before) as gap, before.client() as c:
        rows = c.handovers.rows.find(batch_size=2)
        assert next(rows)
        c.admin.command("replSetStepDown", 5, secondaryCatchUpPeriodSecs=3)
        assert len(list(rows)) == 99, "a cursor lives on with the member that has it"
    return gap.took


def restart(members, member):
    leads = primary(members) is member
    began = time.monotonic()
    if leads:
        with Gap(members, member) as gap:
            member.end(signal.SIGTERM)
    else:
        member.end(signal.SIGTERM)
    ended = time.monotonic() - began
    assert ended < 10, f"a member that was told to end took {ended:.1f} s"
    member.start()
    all_follow(members)
    return gap.took if leads else None


def told(what, times):
    times = sorted(t for t in times if t is not None)
    if times:
        print(f"{what}: without a primary for {times[0]:.2f} to {times[-1]:.2f} s, {len(times)} times")


def run(members, scratch):
    for m in members:
        m.start()
    hosts = [{"_id": i, "host": m.host} for i, m in enumerate(members)]
    members[0].ask({"replSetInitiate": {"_id": NAME, "members": hosts}})
    all_follow(members)
    uri = "mongodb://" + ",".join(m.host for m in members) + f"/?replicaSet={NAME}"
    with pymongo.MongoClient(uri) as c:
        c.handovers.rows.insert_many([{"_id": i} for i in range(100)])
    env = dict(os.environ, MUNIMENT_URI=uri, MUNIMENT_HANDOVERS=str(scratch))
    workload = subprocess.Popen(sys.argv[1:], env=env)

    def works():
        assert workload.poll() is None, f"the workload ended early: {workload.returncode}"
        return (scratch / "ready").exists()

    try:
        # A build tool may have to fetch and compile first.
        until("the workload is ready", works, 600)
        downs, restarts = [], []
        for _ in range(STEP_DOWNS):
            time.sleep(2)
            downs.append(step_down(members))
            all_follow(members)
        # Whoever stepped down may be elected again.
        time.sleep(5)
        for _ in range(ROLLING_RESTARTS):
            last = primary(members)
            for m in [m for m in members if m is not last] + [last]:
                time.sleep(1)
                restarts.append(restart(members, m))
        time.sleep(1)
        (scratch / "done").touch()
        assert workload.wait(120) == 0, "the workload saw errors"
    finally:
        workload.kill()
        workload.wait()
    told("step downs", downs)
    told("rolling restarts", restarts)


def main():
    with tempfile.TemporaryDirectory(prefix="muniment-handovers-") as scratch:
        scratch = pathlib.Path(scratch)
        members = [Member(scratch / f"member{i}") for i in range(3)]
        try:
            run(members, scratch)
        except BaseException:
            for m in members:
                log = m.directory / "log"
                if log.exists():
                    lines = log.read_text(errors="replace").splitlines()
                    kept = [line for line in lines if '"c":"NETWORK"' not in line]
                    print(f"the end of {log}:", *kept[-15:], sep="\n")
            raise
        finally:
            for m in members:
                m.end()
    print("handovers passed")


main()
