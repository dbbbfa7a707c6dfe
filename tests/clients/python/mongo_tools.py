"""mongodump, mongorestore, mongoimport, mongoexport, mongostat and mongotop against MUNIMENT_URI.

Usage: mongo_tools.py [DIRECTORY_WITH_THE_TOOLS]
"""

import datetime
import json
import os
import subprocess
import sys
import tempfile

import bson
import pymongo


def time_series(client, tool, scratch):
    """Dumps time-series collections as buckets, and restores these."""
    db = client.tools_series
    client.drop_database(db.name)
    begin = datetime.datetime(2024, 5, 1)
    kinds = {
        "seconds": {},
        "hours": {"granularity": "hours"},
        "custom": {"bucketMaxSpanSeconds": 90, "bucketRoundingSeconds": 90},
    }
    metas = [1, {"host": 1, "tags": ["a", {"b": 2}]}, [1, 2], [1, 3], None]
    for kind, options in kinds.items():
        options = {"timeField": "t", "metaField": "m", **options}
        db.create_collection(kind, timeseries=options, expireAfterSeconds=10**9)
        points = []
        for i in range(2500):
            p = {"_id": i, "t": begin + datetime.timedelta(seconds=i * 37 % 9000), "m": metas[i % 5]}
            p.update({"v": i / 10} if i % 3 else {"o": {"x": i, "l": [i, {"y": -i}]}})
            if i % 7 == 0:
                p["v"] = f"text {i}"
                del p["m"]
            points.append(p)
        db[kind].insert_many(points)
        db[kind].create_index([("v", 1)])

    def state():
        return {
            kind: (
                sorted(db[kind].find(), key=lambda p: p["_id"]),
                db[kind].options(),
                db[kind].index_information(),
                sorted(b["_id"] for b in db["system.buckets." + kind].find({}, {"_id": 1})),
            )
            for kind in kinds
        }

    before = state()
    assert all(len(points) == 2500 and len(buckets) > 1 for points, _, _, buckets in before.values())
    dump = os.path.join(scratch, "series")
    tool("mongodump", "--db", db.name, "--out", dump)
    client.drop_database(db.name)
    tool("mongorestore", "--nsInclude", f"{db.name}.*", dump)
    assert state() == before
    archive = os.path.join(scratch, "series.gz")
    tool("mongodump", "--db", db.name, f"--archive={archive}", "--gzip")
    tool("mongorestore", "--drop", f"--archive={archive}", "--gzip")
    assert state() == before
    # Buckets that are there already stay as they are.
    with open(os.path.join(dump, db.name, "system.buckets.hours.bson"), "rb") as f:
        buckets = bson.decode_all(f.read())
    try:
        db["system.buckets.hours"].insert_many(buckets, ordered=False)
        raise AssertionError("buckets were stored twice")
    except pymongo.errors.BulkWriteError as e:
        assert {w["code"] for w in e.details["writeErrors"]} == {11000}, e.details
        assert e.details["nInserted"] == 0
    assert state() == before
    query = os.path.join(scratch, "query")
    tool("mongodump", "--db", db.name, "--collection", "custom", "--query", '{"m.host": 1}', "--out", query)
    with open(os.path.join(query, db.name, "system.buckets.custom.bson"), "rb") as f:
        buckets = bson.decode_all(f.read())
    assert sum(len(b["data"]["t"]) for b in buckets) == db.custom.count_documents({"m.host": 1}) > 0
    client.drop_database(db.name)


def main(directory=""):
    uri = os.environ["MUNIMENT_URI"]

    def tool(name, *args, stdin=None):
        path = os.path.join(directory, name) if directory else name
        r = subprocess.run([path, "--uri", uri, *args], capture_output=True, text=True, timeout=120, input=stdin)
        assert r.returncode == 0, f"{name} {args}: exit {r.returncode}\n{r.stdout}\n{r.stderr}"
        return r.stdout + r.stderr

    with pymongo.MongoClient(uri) as client, tempfile.TemporaryDirectory() as scratch:
        db = client.tools
        client.drop_database("tools")
        db.c.insert_many([{"_id": i, "s": f"text {i}", "l": [i, -i]} for i in range(3000)])
        db.c.create_index([("s", 1)], unique=True)
        db.create_collection("capped", capped=True, size=8192, max=10)

        dump = os.path.join(scratch, "dump")
        tool("mongodump", "--db", "tools", "--out", dump)
        client.drop_database("tools")
        tool("mongorestore", "--drop", "--nsInclude", "tools.*", dump)
        assert db.c.count_documents({}) == 3000
        assert db.c.find_one({"_id": 77}) == {"_id": 77, "s": "text 77", "l": [77, -77]}
        assert db.c.index_information()["s_1"]["unique"] is True
        assert db.capped.options()["capped"] is True
        print("mongodump and mongorestore: ok")

        archive = os.path.join(scratch, "archive.gz")
        tool("mongodump", "--db", "tools", f"--archive={archive}", "--gzip")
        client.drop_database("tools")
        tool("mongorestore", f"--archive={archive}", "--gzip")
        assert db.c.count_documents({}) == 3000
        print("archive with gzip: ok")

        time_series(client, tool, scratch)
        print("time series: ok")

        exported = os.path.join(scratch, "c.json")
        tool("mongoexport", "--db", "tools", "--collection", "c", "--out", exported, "--query", '{"_id": {"$lt": 10}}')
        assert len(open(exported).read().splitlines()) == 10
        tool("mongoimport", "--db", "tools", "--collection", "copy", "--file", exported)
        assert db.copy.count_documents({}) == 10
        tool("mongoimport", "--db", "tools", "--collection", "copy", "--mode", "upsert", "--file", exported)
        assert db.copy.count_documents({}) == 10
        tool("mongoimport", "--db", "tools", "--collection", "csv", "--type", "csv", "--headerline", stdin="a,b\n1,x\n2,y\n")
        assert db.csv.count_documents({"a": 1, "b": "x"}) == 1
        print("mongoexport and mongoimport: ok")

        rows = [json.loads(l) for l in tool("mongostat", "--rowcount", "3", "--json", "1").splitlines() if l.startswith("{")]
        assert len(rows) == 3 and all("insert" in next(iter(r.values())) for r in rows), rows
        columns = next(iter(rows[0].values()))
        assert {"dirty", "used", "qrw"} <= columns.keys() and "mapped" not in columns, rows
        if "setName" in client.admin.command("hello"):
            assert columns["repl"] == "PRI", rows
        print("mongostat: ok")
        top = tool("mongotop", "--rowcount", "2", "--json", "1")
        assert "tools.c" in top, top
        print("mongotop: ok")
        client.drop_database("tools")
    print("mongo-tools: 6 passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
