"""mlaunch (mtools) starts, stops and restarts servers, sets and clusters of shards by the names mongod and mongos.

Usage: mlaunch.py PATH_OF_MLAUNCH DIRECTORY_WITH_MONGOD SCRATCH_DIRECTORY PORT
"""

import os
import socket
import subprocess
import sys
import time

import pymongo


def runner(mlaunch, scratch):
    """What runs mlaunch and returns what it prints."""

    def run(*args):
        ended = servers(scratch) if args[0] == "stop" else []
        for _ in range(40):
            r = subprocess.run([mlaunch, *args, "--dir", scratch], capture_output=True, text=True, timeout=120)
            print(r.stdout, r.stderr, sep="")
            # mtools looks at all processes of this name, also at those of others that have ended and were not waited for.
            if "psutil.ZombieProcess" not in r.stderr:
                break
            time.sleep(0.25)
        assert r.returncode == 0, f"mlaunch {args} exited {r.returncode}"
        # mlaunch does not wait for the last one, which ends after the others when it is the primary; a start would leave
        # out what is still there.
        until = time.monotonic() + 30
        while any(map(is_there, ended)):
            assert time.monotonic() < until, "a server that was to end is still there"
            time.sleep(0.05)
        return r.stdout

    return run


def servers(scratch):
    """The processes that have their data below a directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(w.startswith((f"{scratch}/", f"{os.path.abspath(scratch)}/")) for w in words):
            found.append(int(pid))
    return found


def ports_in_a_row(n):
    """The first of n ports that are free now, which mlaunch counts up from one."""
    for first in range(20000 + os.getpid() % 9000, 60000, n):
        try:
            for port in range(first, first + n):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise AssertionError("no ports in a row are free")


def is_there(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def writes(hosts, name, states, n):
    """The n-th document is taken by all members with data, and the members have these states."""
    data = len([s for s in states if s != "ARBITER"])
    uri = f"mongodb://{hosts}/?replicaSet={name}&w={data}&wtimeoutMS=30000"
    with pymongo.MongoClient(uri, serverSelectionTimeoutMS=30000) as c:
        c.mlaunch.c.insert_one({"_id": n})
        assert c.mlaunch.c.count_documents({}) == n
        # Of its role a member tells the primary with its next report.
        until = time.monotonic() + 10
        while True:
            found = sorted(m["stateStr"] for m in c.admin.command("replSetGetStatus")["members"])
            if found == states:
                break
            assert time.monotonic() < until, found
            time.sleep(0.1)


def replica_set(mlaunch, binaries, scratch):
    """A set of four: writes that all have, a stop and a start of all, and of one alone."""
    first = ports_in_a_row(4)
    run = runner(mlaunch, scratch)
    hosts = ",".join(f"localhost:{first + i}" for i in range(4))

    def check(n):
        writes(hosts, "four", ["PRIMARY"] + ["SECONDARY"] * 3, n)

    run("init", "--replicaset", "--nodes", "4", "--name", "four", "--port", str(first), "--binarypath", binaries)
    try:
        check(1)
        run("stop")
        run("start", "--binarypath", binaries)
        check(2)
        ended = [int(line.split()[-1]) for line in run("list").splitlines() if "running" in line.split()]
        run("restart")
        # The primary ends after the others, which mlaunch may not wait for: it then starts only these again.
        until = time.monotonic() + 30
        while any(map(is_there, ended)):
            assert time.monotonic() < until, "a member that was to end is still there"
            time.sleep(0.05)
        if run("list").count("running") < 4:
            run("start", "--binarypath", binaries)
        check(3)
        pid = next(int(line.split()[-1]) for line in run("list").splitlines() if str(first) in line.split())
        run("kill", str(first))
        # mlaunch fails when a process ends while it is about to list it.
        until = time.monotonic() + 30
        while is_there(pid):
            assert time.monotonic() < until, "the member that was killed is still there"
            time.sleep(0.05)
        assert run("list").count("running") == 3
        run("start", str(first), "--binarypath", binaries)
        check(4)
    finally:
        subprocess.run([mlaunch, "kill", "--dir", scratch], timeout=60, check=False)
        time.sleep(0.2)


def with_arbiter(mlaunch, binaries, scratch):
    """A set of two and an arbiter, which comes back as one after a stop and a start of all."""
    first = ports_in_a_row(3)
    run = runner(mlaunch, scratch)
    hosts = ",".join(f"localhost:{first + i}" for i in range(3))

    def check(n):
        writes(hosts, "two", ["ARBITER", "PRIMARY", "SECONDARY"], n)

    run("init", "--replicaset", "--nodes", "2", "--arbiter", "--name", "two", "--port", str(first),
        "--binarypath", binaries)
    try:
        check(1)
        run("stop")
        run("start", "--binarypath", binaries)
        check(2)
    finally:
        subprocess.run([mlaunch, "kill", "--dir", scratch], timeout=60, check=False)
        time.sleep(0.2)


def with_logins(mlaunch, binaries, scratch):
    """A server, and a set of three, of which mlaunch creates the user and shares the key."""
    for name, size in [("alone", ["--single"]), ("three", ["--replicaset", "--nodes", "3", "--name", "three"])]:
        first = ports_in_a_row(3)
        run = runner(mlaunch, f"{scratch}-{name}")
        hosts = [f"localhost:{first + i}" for i in range(3 if name == "three" else 1)]
        options = f"/?replicaSet={name}&w=3&wtimeoutMS=30000" if name == "three" else "/?directConnection=true"
        login = "mongodb://{}@" + ",".join(hosts) + options

        def check(n):
            with pymongo.MongoClient(login.format("user:password"), serverSelectionTimeoutMS=30000) as c:
                c.mlaunch.c.insert_one({"_id": n})
                assert c.mlaunch.c.count_documents({}) == n
            # Everybody else is refused, also with the wrong password.
            for who, code in [("user:wrong", 18), ("other:password", 18)]:
                with pymongo.MongoClient(login.format(who), serverSelectionTimeoutMS=30000) as c:
                    try:
                        c.mlaunch.c.find_one()
                        raise AssertionError(f"{who} is let in")
                    except pymongo.errors.OperationFailure as e:
                        assert e.code == code, e
            with pymongo.MongoClient(hosts[0], directConnection=True, serverSelectionTimeoutMS=30000) as c:
                try:
                    c.mlaunch.c.find_one()
                    raise AssertionError("a client without a login is let in")
                except pymongo.errors.OperationFailure as e:
                    assert e.code == 13, e

        run("init", *size, "--auth", "--port", str(first), "--binarypath", binaries)
        try:
            check(1)
            run("stop")
            run("start", "--binarypath", binaries)
            check(2)
        finally:
            subprocess.run([mlaunch, "kill", "--dir", f"{scratch}-{name}"], timeout=60, check=False)
            time.sleep(0.2)


def sharded(mlaunch, binaries, scratch):
    """Shards with names behind two routers, and two shards with logins; a stop and a start of all."""
    for name, options in [("names", ["--sharded", "tic", "tac", "toe", "--mongos", "2"]),
                          ("logins", ["--sharded", "2", "--mongos", "1", "--auth"])]:
        first = ports_in_a_row(8)
        run = runner(mlaunch, f"{scratch}-{name}")
        login = "user:password@" if name == "logins" else ""

        def client(port):
            return pymongo.MongoClient(f"mongodb://{login}localhost:{port}/", serverSelectionTimeoutMS=30000)

        def check(n):
            with client(first) as c:
                for db in ["a", "b", "c"]:
                    c[db].c.insert_one({"_id": n})
                    assert c[db].c.count_documents({}) == n
                shards = sorted(d["_id"] for d in c.config.shards.find())
                expected = ["tac", "tic", "toe"] if name == "names" else ["shard01", "shard02"]
                assert shards == expected, shards
                primaries = {d["primary"] for d in c.config.databases.find()}
                assert primaries == set(expected), primaries
            if name == "names":
                with client(first + 1) as c:
                    assert c.a.c.count_documents({}) == n

        run("init", "--replicaset", "--nodes", "1", "--config", "1", *options, "--port", str(first),
            "--binarypath", binaries)
        try:
            check(1)
            run("stop")
            run("start", "--binarypath", binaries)
            check(2)
        finally:
            subprocess.run([mlaunch, "kill", "--dir", f"{scratch}-{name}"], timeout=60, check=False)
            time.sleep(0.2)


def eight_shards(mlaunch, binaries, scratch):
    """Eight hashed shards; a stop and a start of all, and the end of one shard and its start."""
    first = ports_in_a_row(11)
    run = runner(mlaunch, scratch)

    def check(n):
        with pymongo.MongoClient(f"mongodb://localhost:{first}/", serverSelectionTimeoutMS=30000) as c:
            documents = c.mlaunch.c
            documents.insert_many([{"_id": f"{n}-{i}"} for i in range(400)])
            assert documents.count_documents({}) == n * 400
            stats = list(documents.aggregate([{"$collStats": {"count": {}}}]))
            assert len({s["shard"] for s in stats}) == 8, stats
            assert min(s["count"] for s in stats) > n * 10, stats

    run("init", "--replicaset", "--nodes", "1", "--sharded", "8", "--config", "1", "--mongos", "1",
        "--port", str(first), "--binarypath", binaries)
    try:
        with pymongo.MongoClient(f"mongodb://localhost:{first}/") as c:
            c.admin.command("enableSharding", "mlaunch")
            c.admin.command("shardCollection", "mlaunch.c", key={"_id": "hashed"})
        check(1)
        run("stop")
        run("start", "--binarypath", binaries)
        check(2)
        pid = next(int(line.split()[-1]) for line in run("list").splitlines() if str(first + 3) in line.split())
        run("kill", str(first + 3))
        until = time.monotonic() + 30
        while is_there(pid):
            assert time.monotonic() < until, "the shard that was killed is still there"
            time.sleep(0.05)
        assert run("list").count("running") == 9
        run("start", str(first + 3), "--binarypath", binaries)
        check(3)
    finally:
        subprocess.run([mlaunch, "kill", "--dir", scratch], timeout=60, check=False)
        time.sleep(0.2)


def main(mlaunch, binaries, scratch, port):
    run = runner(mlaunch, scratch)

    def client():
        return pymongo.MongoClient(f"mongodb://127.0.0.1:{port}", serverSelectionTimeoutMS=5000)

    run("init", "--single", "--port", port, "--binarypath", binaries)
    try:
        with client() as c:
            c.mlaunch.c.insert_one({"_id": 1}, )
        assert "running" in run("list")
        run("stop")
        try:
            with pymongo.MongoClient(f"mongodb://127.0.0.1:{port}", serverSelectionTimeoutMS=300) as c:
                c.admin.command("ping")
            raise AssertionError("the server answers after mlaunch stop")
        except pymongo.errors.ServerSelectionTimeoutError:
            pass
        run("start", "--binarypath", binaries)
        with client() as c:
            assert c.mlaunch.c.find_one() == {"_id": 1}
        run("restart")
        with client() as c:
            assert c.mlaunch.c.count_documents({}) == 1
    finally:
        subprocess.run([mlaunch, "kill", "--dir", scratch], timeout=60, check=False)
        time.sleep(0.2)
    replica_set(mlaunch, binaries, scratch + "-set")
    with_arbiter(mlaunch, binaries, scratch + "-arbiter")
    with_logins(mlaunch, binaries, scratch + "-logins")
    sharded(mlaunch, binaries, scratch + "-sharded")
    eight_shards(mlaunch, binaries, scratch + "-eight")
    print("mlaunch: 8 passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
