"""mongodump --oplog under writers and mongorestore --oplogReplay.

Usage: mongo_tools_oplog.py [DIRECTORY_WITH_THE_TOOLS]

MUNIMENT_URI is a replica set of one, which is dumped; MUNIMENT_TARGET_URI is an empty server, into
which the dump is restored. What is restored must be what the first server had at the time of the
last entry in the dump's oplog, as a change stream tells it that was opened before.
"""

import contextlib
import datetime
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

import bson
import pymongo
from pymongo.errors import OperationFailure

DB = "tools_oplog"
ACCOUNTS = 40
TOTAL = 2 * ACCOUNTS * 1000
LARGE = ["large_1", "large_2"]
# Collections whose changed documents a stream is to show.
SHOWN = ["a", "b", "c", *LARGE]


def changes(db, rng, i):
    """One write of the ordinary kind, by the driver's retryable writes."""
    key = {"_id": rng.randrange(300)}
    kind = rng.randrange(10)
    if kind < 3:
        db.c.insert_one({"_id": 1000 + i, "n": i, "l": [1, {"x": 2}], "s": {"a": 1, "b": {"c": i}}})
    elif kind == 3:
        db.c.update_one({**key, "l.1.x": {"$exists": True}}, {"$set": {"l.1.x": i}, "$push": {"m": i}})
        db.c.update_one(key, {"$inc": {"n": 1}, "$set": {"s.b.c": i}, "$unset": {"gone": 1}})
    elif kind == 4:
        db.c.update_one(key, {"$push": {"l": i}, "$set": {"gone": i, "t": datetime.datetime(2024, 1, 1)}})
    elif kind == 5:
        db.c.update_many({"n": {"$mod": [7, i % 7]}}, [{"$set": {"p": {"$add": ["$n", 1]}}}])
    elif kind == 6:
        db.c.replace_one(key, {"n": i, "replaced": True, "l": [], "s": {}}, upsert=True)
    elif kind == 7:
        db.c.delete_one(key)
        db.c.delete_many({"_id": {"$gte": 1000, "$lt": 1000 + i - 50}})
    elif kind == 8:
        db.c.find_one_and_update(key, {"$set": {"l": list(range(i % 5)), "s": {"b": {"d": i}}}}, upsert=True)
    else:
        db.large_1.update_one({"_id": rng.randrange(2000)}, {"$set": {"touched": i}})
        db.large_2.delete_one({"_id": rng.randrange(2000)})


def transfer(client, rng, i):
    """A transaction over three collections."""
    db = client[DB]
    amount = rng.randrange(1, 20)
    with client.start_session() as session:
        try:
            with session.start_transaction():
                pay = {"_id": rng.randrange(ACCOUNTS)}
                db.a.update_one(pay, {"$inc": {"amount": -amount}}, session=session)
                db.moves.insert_one({"_id": i, "amount": amount}, session=session)
                db.b.update_one({"_id": rng.randrange(ACCOUNTS)}, {"$inc": {"amount": amount}}, session=session)
                if i % 5 == 0:
                    db.moves.delete_many({"_id": {"$lt": i - 200}}, session=session)
                if i % 7 == 0:
                    session.abort_transaction()
        except OperationFailure as e:
            assert e.has_error_label("TransientTransactionError"), e


def large_transaction(client, i):
    """More than one entry of the oplog holds."""
    db = client[DB]
    with client.start_session() as session, session.start_transaction():
        for part in range(20):
            db.wide.replace_one({"_id": part}, {"i": i, "text": "x" * 1_000_000}, upsert=True, session=session)


def definitions(db, i):
    """Collections and indexes come and go."""
    name = f"made_{i % 6}"
    db.drop_collection(name)
    options = [{}, {"capped": True, "size": 100_000}, {"validator": {"n": {"$type": "number"}}}][i % 3]
    db.create_collection(name, **options)
    db[name].insert_many([{"_id": k, "n": k, "s": str(k)} for k in range(20)])
    db[name].create_index([("n", 1), ("s", -1)], name="two")
    db[name].create_index("s", unique=True, partialFilterExpression={"n": {"$gt": 3}})
    if i % 2:
        db[name].drop_index("two")
    # Its first write makes the collection, and the index is there before any document.
    db[f"implicit_{i % 4}"].create_index("x")
    db[f"implicit_{i % 4}"].insert_one({"x": i})
    db.c.create_index(f"later_{i % 3}")


class Writers:
    """Threads that write until they are stopped; what goes wrong in one goes wrong in the test."""

    def __init__(self, client):
        self.stopped = threading.Event()
        self.failures = []
        self.counts = {}
        rng = random.Random(4)
        works = {
            "changes": lambda i: changes(client[DB], rng, i),
            "transfers": lambda i: transfer(client, rng, i),
            "large": lambda i: (large_transaction(client, i), time.sleep(0.3)),
            "definitions": lambda i: (definitions(client[DB], i), time.sleep(0.05)),
        }
        self.threads = [threading.Thread(target=self.run, args=work) for work in works.items()]
        for thread in self.threads:
            thread.start()

    def run(self, name, work):
        i = 0
        while not self.stopped.is_set():
            i += 1
            try:
                work(i)
            except Exception as e:  # noqa: BLE001
                self.failures.append((name, e))
                return
        self.counts[name] = i

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        assert not self.failures, self.failures


def fill(client):
    db = client[DB]
    client.drop_database(DB)
    for name in SHOWN:
        db.create_collection(name, changeStreamPreAndPostImages={"enabled": True})
    rng = random.Random(3)
    for name in LARGE:
        for part in range(0, 5000, 1000):
            db[name].insert_many([{"_id": part + i, "text": rng.randbytes(400)} for i in range(1000)])
    for name in ["a", "b"]:
        db[name].insert_many([{"_id": i, "amount": 1000} for i in range(ACCOUNTS)])
    db.c.insert_many([{"_id": i, "n": i, "l": [0, {"x": 0}], "s": {"b": {"c": 0}}} for i in range(300)])


def state(db):
    """The documents of every collection that has any, by their _id."""
    found = {name: {d["_id"]: d for d in db[name].find()} for name in db.list_collection_names()}
    return {name: docs for name, docs in found.items() if docs}


class Model:
    """What a database has, as a change stream tells it."""

    def __init__(self, db):
        self.db = db
        self.stream = db.watch(full_document="whenAvailable", batch_size=1000)
        self.found = state(db)

    def at(self, end):
        """The state at a time, behind which the caller has written."""
        with self.stream:
            for event in self.stream:
                if event["clusterTime"] > end:
                    break
                docs = self.found.setdefault(event["ns"]["coll"], {})
                kind = event["operationType"]
                if kind == "drop":
                    docs.clear()
                elif kind == "delete":
                    del docs[event["documentKey"]["_id"]]
                else:
                    assert kind in ("insert", "update", "replace"), event
                    docs[event["documentKey"]["_id"]] = event["fullDocument"]
        return {name: docs for name, docs in self.found.items() if docs}


def same(got, expected):
    for name in got.keys() | expected.keys():
        a, b = expected.get(name, {}), got.get(name, {})
        differ = [(k, a.get(k), b.get(k)) for k in a.keys() | b.keys() if a.get(k) != b.get(k)]
        assert not differ, f"{name}: {len(differ)} differ: {str(differ[:3])[:2000]}"


def shapes(tool, path):
    """bsondump shows entries as MongoDB's oplog has them; returns how many of each kind."""
    kinds = {}
    for line in tool("bsondump", "--quiet", path).splitlines():
        e = json.loads(line)
        kind = e["op"]
        always = {"op", "ns", "o", "ts", "t", "v", "wall"}
        assert always <= e.keys(), line
        assert e["v"] == {"$numberInt": "2"} or e["v"] == {"$numberLong": "2"}, line
        assert "$timestamp" in e["ts"] and "$date" in e["wall"], line
        unknown = e.keys() - always - {
            "ui", "o2", "lsid", "txnNumber", "stmtId", "prevOpTime", "preImageOpTime", "postImageOpTime",
            "needsRetryImage", "fromMigrate", "multiOpType", "versionContext",
        }
        assert not unknown, (unknown, line)
        if kind in "iud":
            assert "$binary" in e["ui"] and "." in e["ns"], line
        if kind == "u":
            assert list(e["o2"]) == ["_id"], line
            delta = "$v" in e["o"]
            assert not delta or (e["o"]["$v"] == {"$numberInt": "2"} and "diff" in e["o"]), line
            kind = "delta" if delta else "replacement"
        if kind == "d":
            assert list(e["o"]) == ["_id"], line
        if kind == "c":
            assert e["ns"].endswith(".$cmd"), line
            kind = next(iter(e["o"]))
            if kind == "applyOps":
                assert e["ns"] == "admin.$cmd", line
                for op in e["o"]["applyOps"]:
                    assert {"op", "ns", "ui", "o"} <= op.keys() and op["op"] in "iudc", op
                    # Only a transaction makes its collections together with what is in them.
                    assert op["op"] != "c" or "lsid" in e and "create" in op["o"], op
                if "lsid" in e:
                    assert {"lsid", "txnNumber", "prevOpTime"} <= e.keys(), line
                kind = "partialTxn" if "partialTxn" in e["o"] else kind
        kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


def main(directory=""):
    uri, target = os.environ["MUNIMENT_URI"], os.environ["MUNIMENT_TARGET_URI"]

    def path_of(name):
        return os.path.join(directory, name) if directory else name

    def tool(name, *args):
        r = subprocess.run([path_of(name), *args], capture_output=True, text=True, timeout=300)
        assert r.returncode == 0, f"{name} {args}: exit {r.returncode}\n{r.stdout[-2000:]}\n{r.stderr[-4000:]}"
        return r.stdout

    def dump(*args, paused=lambda: None):
        """Dumps; the first collection's dump is held up while `paused` runs."""
        command = [path_of("mongodump"), "--uri", uri, "--oplog", "-j", "1", *args]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        lines = []
        for line in process.stderr:
            if f"writing `{DB}." in line and not any(f"writing `{DB}." in x for x in lines):
                process.send_signal(signal.SIGSTOP)
                paused()
                process.send_signal(signal.SIGCONT)
            lines.append(line)
        assert process.wait(300) == 0, "".join(lines)
        assert any(f"writing `{DB}." in x for x in lines), "".join(lines)

    with contextlib.ExitStack() as stack:
        client = stack.enter_context(pymongo.MongoClient(uri))
        restored = stack.enter_context(pymongo.MongoClient(target))
        scratch = stack.enter_context(tempfile.TemporaryDirectory())

        # Writers are there all the time.
        fill(client)
        model = Model(client[DB])
        writers = Writers(client)
        time.sleep(0.5)
        out = os.path.join(scratch, "racing")
        dump("--out", out, paused=lambda: time.sleep(2))
        writers.stop()
        client[DB].c.insert_one({"_id": "end"})
        oplog = os.path.join(out, "oplog.bson")
        kinds = shapes(tool, oplog)
        print("entries of the oplog:", kinds)
        wanted = {"i", "delta", "d", "applyOps", "partialTxn", "create", "drop"}
        assert wanted <= kinds.keys() and kinds.keys() & {"createIndexes", "commitIndexBuild"}, kinds
        tool("mongorestore", "-v", "--uri", target, "--oplogReplay", out)
        with open(oplog, "rb") as f:
            end = bson.decode_all(f.read())[-1]["ts"]
        got = state(restored[DB])
        total = sum(d["amount"] for name in ["a", "b"] for d in got[name].values())
        assert total == TOTAL, f"money was made or lost: {total}"
        same(got, model.at(end))
        print(f"writers all the time, {writers.counts}: ok")

        # Writers end while the first collection is dumped: then the source does not change any more.
        restored.drop_database(DB)
        fill(client)
        writers = Writers(client)
        out = os.path.join(scratch, "ended")

        def pause():
            time.sleep(1)
            writers.stop()

        dump("--out", out, "--gzip", paused=pause)
        tool("mongorestore", "-v", "--uri", target, "--oplogReplay", "--gzip", out)
        source, copy = client[DB], restored[DB]
        names = sorted(source.list_collection_names())
        assert names == sorted(copy.list_collection_names()), (names, copy.list_collection_names())
        same(state(copy), state(source))
        for name in names:
            indexes = [db[name].index_information() for db in (source, copy)]
            assert indexes[0] == indexes[1], (name, indexes)
            options = [db[name].options() for db in (source, copy)]
            assert options[0] == options[1], (name, options)
        print(f"writers that ended, {writers.counts}: ok")

        # An archive, and a dump while nothing happens.
        restored.drop_database(DB)
        archive = os.path.join(scratch, "archive.gz")
        dump(f"--archive={archive}", "--gzip")
        tool("mongorestore", "-v", "--uri", target, "--oplogReplay", f"--archive={archive}", "--gzip")
        same(state(restored[DB]), state(client[DB]))
        print("archive: ok")
        client.drop_database(DB)
        restored.drop_database(DB)
    print("mongo-tools with the oplog: 3 passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
