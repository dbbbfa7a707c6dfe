"""The database tools on a set of three: what mongostat tells of its members, a dump from a secondary, and
the files of a rollback, which bsondump and mongorestore read.

Usage: mongo_tools_set.py DIRECTORY_WITH_TOOLS (MUNIMENT_BINARY names the server's program)
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pymongo

TOOLS = sys.argv[1]


def tool(name, *args):
    r = subprocess.run([os.path.join(TOOLS, name), *args], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, f"{name} {args} exited {r.returncode}: {r.stderr}"
    return r.stdout


class Member:
    def __init__(self, directory):
        self.directory, self.port, self.process = pathlib.Path(directory), 0, None
        self.data = self.directory / "db"
        self.data.mkdir()

    def start(self):
        file = self.directory / "port"
        file.unlink(missing_ok=True)
        args = [os.environ["MUNIMENT_BINARY"], "serve", "--replSet", "tools", "--port", str(self.port)]
        args += ["--dbpath", str(self.data), "--portFile", str(file)]
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(args, stdout=log, stderr=log)
        until("a member listens", lambda: file.exists() and file.read_text().strip() not in ("", "0"))
        self.port = int(file.read_text())

    def kill(self):
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    def client(self):
        return pymongo.MongoClient(f"mongodb://{self.host}/?directConnection=true")


def until(what, found, seconds=60):
    end = time.monotonic() + seconds
    while True:
        try:
            if result := found():
                return result
        # A tool may meet a file that is being written.
        except (pymongo.errors.PyMongoError, OSError, AssertionError):
            pass
        assert time.monotonic() < end, f"it never came: {what}"
        time.sleep(0.05)


def primary(members):
    def found():
        for m in members:
            if m.process:
                with m.client() as c:
                    if c.admin.command("hello")["isWritablePrimary"]:
                        return m
        return None

    return until("a primary", found)


def settled(members):
    def all_serve():
        with primary(members).client() as c:
            states = [m["stateStr"] for m in c.admin.command("replSetGetStatus")["members"]]
            return sorted(states) == ["PRIMARY", "SECONDARY", "SECONDARY"]

    until("all members serve", all_serve)


def check_mongostat(members):
    out = tool("mongostat", "--host", f"tools/{','.join(m.host for m in members)}", "--discover", "--json", "--rowcount", "4", "1")
    rows = {}
    for line in out.splitlines():
        if line.startswith("{"):
            # A member that mongostat has no new figures of says so in a row: others have them.
            rows.update({host: row for host, row in json.loads(line).items() if "repl" in row})
    roles = sorted(row["repl"] for row in rows.values())
    assert roles == ["PRI", "SEC", "SEC"], rows
    assert {row["set"] for row in rows.values()} == {"tools"}, rows
    print("mongostat: ok")


def check_dump(members, scratch):
    uri = f"mongodb://{','.join(m.host for m in members)}/?replicaSet=tools&readPreference=secondary"
    tool("mongodump", f"--uri={uri}", "--db=t", f"--out={scratch}/dump")
    tool("mongorestore", f"--uri={uri}", f"--dir={scratch}/dump", "--nsFrom=t.*", "--nsTo=restored.*")
    with pymongo.MongoClient(uri, readPreference="primary") as c:
        assert c.restored.c.count_documents({}) == 100
    print("mongodump and mongorestore: ok")


def check_rollback(members):
    first = primary(members)
    others = [m for m in members if m is not first]
    for m in others:
        m.kill()
    with first.client() as c:
        # Until it finds that it has no majority any more.
        c.get_database("t", write_concern=pymongo.WriteConcern(w=1, j=True)).c.insert_many([{"_id": 1000 + i, "lost": True} for i in range(20)])
    first.kill()
    for m in others:
        m.start()
    second = primary(members)
    with second.client() as c:
        c.get_database("t", write_concern=pymongo.WriteConcern("majority")).c.insert_one({"_id": "later"})
    first.start()
    settled(members)

    def files():
        return list((first.data / "rollback").glob("*/removed.*.bson"))

    def dumped():
        lines = [line for f in files() for line in tool("bsondump", "--quiet", str(f)).splitlines()]
        return sorted(int(json.loads(line)["_id"]["$numberInt"]) for line in lines)

    # It shows itself as a secondary before it hears that what it has is to be given up.
    until("the files of the rollback", lambda: dumped() == list(range(1000, 1020)))
    with primary(members).client() as c:
        until("nobody has it", lambda: c.t.c.count_documents({"lost": True}) == 0)
        for f in files():
            tool("mongorestore", f"--host={primary(members).host}", "--db=t", "--collection=saved", str(f))
        assert c.t.saved.count_documents({"lost": True}) == 20
    print("bsondump and mongorestore of rollback files: ok")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        members = []
        try:
            for i in range(3):
                os.mkdir(f"{scratch}/{i}")
                members.append(Member(f"{scratch}/{i}"))
                members[-1].start()
            config = {
                "_id": "tools",
                "members": [{"_id": i, "host": m.host} for i, m in enumerate(members)],
                "settings": {"electionTimeoutMillis": 1000, "heartbeatIntervalMillis": 200},
            }
            with members[0].client() as c:
                c.admin.command("replSetInitiate", config)
            settled(members)
            with primary(members).client() as c:
                all_have = pymongo.WriteConcern(w=3, wtimeout=30000)
                c.get_database("t", write_concern=all_have).c.insert_many([{"_id": i} for i in range(100)])
            check_mongostat(members)
            check_dump(members, scratch)
            check_rollback(members)
        finally:
            for m in members:
                m.kill()


main()
