"""mongodump, mongorestore, mongoimport, mongoexport, mongostat and mongotop against MUNIMENT_URI.

Usage: mongo_tools.py [DIRECTORY_WITH_THE_TOOLS]
"""

import json
import os
import subprocess
import sys
import tempfile

import pymongo


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
        print("mongostat: ok")
        top = tool("mongotop", "--rowcount", "2", "--json", "1")
        assert "tools.c" in top, top
        print("mongotop: ok")
        client.drop_database("tools")
    print("mongo-tools: 5 passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
