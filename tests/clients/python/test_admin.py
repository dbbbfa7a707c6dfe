"""Indexes, collections, cursors, write concern and the commands that tools send."""

import threading
import time

import pymongo
import pytest
from pymongo import WriteConcern
from pymongo.errors import CursorNotFound, ExecutionTimeout, OperationFailure, WriteError

LEGACY = pymongo.version_tuple[0] < 4


def test_hello_and_build_info(client):
    hello = client.admin.command("hello")
    assert hello["isWritablePrimary"] is True
    assert hello["maxBsonObjectSize"] == 16777216
    assert hello["maxMessageSizeBytes"] == 48000000
    assert hello["maxWriteBatchSize"] == 100000
    assert hello["logicalSessionTimeoutMinutes"] == 30
    info = client.server_info()
    assert len(info["versionArray"]) == 4
    with pytest.raises(OperationFailure) as e:
        client.admin.command("noSuchThing")
    assert e.value.code == 59


def test_indexes(db, coll):
    coll.insert_many([{"_id": i, "a": i % 10, "b": [i, -i]} for i in range(200)])
    assert coll.create_index([("a", 1)]) == "a_1"
    coll.create_index([("b", 1)], name="multi")
    coll.create_index([("t", 1)], expireAfterSeconds=3600, sparse=True)
    coll.create_index([("p", 1)], partialFilterExpression={"a": {"$gt": 5}})
    info = coll.index_information()
    assert set(info) == {"_id_", "a_1", "multi", "t_1", "p_1"}
    assert info["t_1"]["expireAfterSeconds"] == 3600
    plan = coll.find({"a": 3}).explain()["queryPlanner"]["winningPlan"]
    assert plan["stage"] == "FETCH" and plan["inputStage"]["stage"] == "IXSCAN"
    assert plan["inputStage"]["indexName"] == "a_1"
    assert coll.count_documents({"a": 3}) == 20
    assert coll.count_documents({"b": -7}) == 1
    assert len(list(coll.find({"a": 3}).hint("a_1"))) == 20
    assert coll.find({"a": 3}, {"_id": 0, "a": 1}).explain()["queryPlanner"]["winningPlan"]["stage"] == (
        "PROJECTION_COVERED"
    )
    with pytest.raises(OperationFailure) as e:
        coll.create_index([("a", 1)], name="other")
    assert e.value.code == 85
    coll.drop_index("a_1")
    assert coll.find({"a": 3}).explain()["queryPlanner"]["winningPlan"]["stage"] == "COLLSCAN"
    with pytest.raises(OperationFailure) as e:
        coll.drop_index("a_1")
    assert e.value.code == 27
    assert db.command("validate", coll.name, full=True)["valid"] is True


def test_unique_index_on_duplicates_fails(coll):
    coll.insert_many([{"a": 1}, {"a": 1}])
    with pytest.raises(OperationFailure) as e:
        coll.create_index("a", unique=True)
    assert e.value.code == 11000
    assert set(coll.index_information()) == {"_id_"}


def test_sorted_by_index_has_no_sort_stage(coll):
    coll.insert_many([{"a": i, "b": -i} for i in range(50)])
    coll.create_index([("a", 1), ("b", 1)])

    def stages(plan):
        return [plan["stage"]] + (stages(plan["inputStage"]) if "inputStage" in plan else [])

    assert "SORT" not in stages(coll.find({"a": 5}).sort("b", -1).explain()["queryPlanner"]["winningPlan"])
    assert "SORT" in stages(coll.find({}).sort("b", 1).explain()["queryPlanner"]["winningPlan"])


def test_collections_and_databases(client, db):
    db.create_collection("one")
    db.two.insert_one({})
    assert sorted(db.list_collection_names()) == ["one", "two"]
    assert db.name in client.list_database_names()
    with pytest.raises(Exception):
        db.create_collection("one")
    db.two.rename("three")
    assert sorted(db.list_collection_names()) == ["one", "three"]
    stats = db.command("collStats", "three")
    assert stats["count"] == 1 and stats["nindexes"] == 1
    assert db.command("dbStats")["collections"] == 2
    db.drop_collection("one")
    client.drop_database(db.name)
    assert db.name not in client.list_database_names()


def test_capped_and_tailable(db):
    capped = db.create_collection("capped", capped=True, size=100000, max=5)
    capped.insert_many([{"n": i} for i in range(8)])
    assert [d["n"] for d in capped.find()] == [3, 4, 5, 6, 7]
    cursor = capped.find({}, cursor_type=pymongo.CursorType.TAILABLE_AWAIT).max_await_time_ms(5000)
    for _ in range(5):
        next(cursor)

    def later():
        time.sleep(0.2)
        capped.insert_one({"n": 99})

    t = threading.Thread(target=later)
    t.start()
    started = time.monotonic()
    assert next(cursor)["n"] == 99
    assert time.monotonic() - started < 3
    t.join()
    cursor.close()
    with pytest.raises(OperationFailure):
        next(db.plain.find({}, cursor_type=pymongo.CursorType.TAILABLE)) if db.plain.insert_one({}) else None


def test_cursor_lifetime(client, coll):
    coll.insert_many([{"_id": i} for i in range(500)])
    cursor = coll.find().batch_size(2)
    next(cursor)
    cursor_id = cursor.cursor_id
    assert cursor_id > 0
    coll.database.command("killCursors", coll.name, cursors=[cursor_id])
    with pytest.raises((CursorNotFound, OperationFailure)) as e:
        list(cursor)
    assert e.value.code == 43


def test_max_time_ms(client, coll):
    coll.insert_many([{"a": i} for i in range(20000)])
    client.admin.command("configureFailPoint", "maxTimeAlwaysTimeOut", mode="off") if False else None
    with pytest.raises(ExecutionTimeout):
        list(coll.find({"$expr": {"$eq": [{"$add": [{"$multiply": ["$a", 3]}, 1]}, -1]}}).max_time_ms(1))


def test_write_concerns(db, coll):
    for wc in [WriteConcern(w=1), WriteConcern(w=1, j=True), WriteConcern(w="majority"),
               WriteConcern(w="majority", wtimeout=1000)]:
        r = coll.with_options(write_concern=wc).insert_one({})
        assert r.acknowledged
    r = coll.with_options(write_concern=WriteConcern(w=0)).insert_one({"_id": "quiet"})
    assert not r.acknowledged
    deadline = time.monotonic() + 5
    while coll.find_one({"_id": "quiet"}) is None:
        assert time.monotonic() < deadline
    for wc, code in [({"w": 2}, 2), ({"w": "dc1"}, 2), ({"w": 51}, 9), ({"w": -1}, 9), ({"bogus": 1}, 40415),
                     ({"j": True, "fsync": True}, 9)]:
        with pytest.raises(OperationFailure) as e:
            db.command("insert", "c", documents=[{}], writeConcern=wc)
        assert e.value.code == code, wc
    got = db.client.admin.command("getDefaultRWConcern")
    assert got["defaultWriteConcern"]["w"] == 1  # a standalone has no majority to wait for
    assert got["defaultWriteConcernSource"] == "implicit"


def test_diagnostics(client, db, coll):
    coll.insert_one({})
    status = client.admin.command("serverStatus")
    for section in ["connections", "mem", "network", "opcounters", "storageEngine", "uptime"]:
        assert section in status
    assert status["opcounters"]["insert"] > 0
    for command in ["hostInfo", "connectionStatus", "listCommands", "whatsmyuri", "getCmdLineOpts", "top",
                    "ping", "currentOp"]:
        assert client.admin.command(command)["ok"] == 1
    assert client.admin.command("getLog", "startupWarnings")["totalLinesWritten"] >= 0
    assert client.admin.command("getParameter", 1, featureCompatibilityVersion=1)
    for query in [{"find": "c", "filter": {}}, {"count": "c"}, {"distinct": "c", "key": "a"},
                  {"aggregate": "c", "pipeline": [], "cursor": {}},
                  {"delete": "c", "deletes": [{"q": {}, "limit": 0}]},
                  {"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]}]:
        for verbosity in ["queryPlanner", "executionStats", "allPlansExecution"]:
            assert db.command("explain", query, verbosity=verbosity)["ok"] == 1
    assert coll.count_documents({}) == 1


def test_ttl_and_hidden_by_collmod(db, coll):
    coll.create_index("d", expireAfterSeconds=100)
    r = db.command("collMod", "c", index={"keyPattern": {"d": 1}, "expireAfterSeconds": 200})
    assert (r["expireAfterSeconds_old"], r["expireAfterSeconds_new"]) == (100, 200)
    r = db.command("collMod", "c", index={"name": "d_1", "hidden": True})
    assert r["hidden_new"] is True


def test_fail_command(client, coll):
    fail = {"failCommands": ["insert"], "errorCode": 96}
    client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=fail)
    with pytest.raises(OperationFailure) as e:
        coll.database.command("insert", "c", documents=[{}])
    assert e.value.code == 96
    coll.insert_one({})


def test_kill_op(client, coll):
    coll.insert_one({})
    fail = {"failCommands": ["count"], "blockConnection": True, "blockTimeMS": 20000}
    client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=fail)
    errors = []

    def run():
        try:
            coll.database.command("count", "c")
        except OperationFailure as e:
            errors.append(e.code)

    t = threading.Thread(target=run)
    t.start()
    deadline = time.monotonic() + 10
    killed = False
    while not killed and time.monotonic() < deadline:
        for op in client.admin.command("currentOp")["inprog"]:
            if "count" in op.get("command", {}):
                client.admin.command("killOp", op=op["opid"])
                killed = True
        time.sleep(0.05)
    t.join(10)
    assert killed and not t.is_alive() and errors == [11601]


def test_unsupported_option_is_named(db, coll):
    for command in [{"find": "c", "bogus": 1}, {"insert": "c", "documents": [{}], "bogus": 1},
                    {"create": "x", "bogus": 1}, {"createIndexes": "c", "indexes": [
                        {"key": {"a": 1}, "name": "a", "bogus": 1}]}]:
        with pytest.raises(OperationFailure) as e:
            db.command(command)
        assert "bogus" in str(e.value), command


def test_validate_error_kinds(coll):
    with pytest.raises(WriteError):
        coll.insert_one({"_id": [1]})


@pytest.mark.parametrize("compressor", ["zlib"] if LEGACY else ["zlib", "snappy", "zstd"])
def test_compression(uri, compressor):
    with pymongo.MongoClient(uri, compressors=compressor) as c:
        c.py_compress.c.drop()
        c.py_compress.c.insert_many([{"_id": i, "s": "compress me " * 100} for i in range(500)])
        assert sum(1 for _ in c.py_compress.c.find()) == 500
        c.drop_database("py_compress")


def test_sessions_are_accepted(client, coll):
    with client.start_session() as s:
        coll.insert_one({"_id": 1}, session=s)
        assert coll.find_one({"_id": 1}, session=s) == {"_id": 1}
