"""The oplog as tools follow it: a tailable cursor from a timestamp on."""

import threading

import pymongo
from pymongo import CursorType


def last(oplog):
    return oplog.find().sort("$natural", -1).limit(1).next()["ts"]


def follow(oplog, begin):
    return oplog.find(
        {"ts": {"$gt": begin}, "ns": {"$regex": "^oplog_of_tools"}},
        cursor_type=CursorType.TAILABLE_AWAIT,
        oplog_replay=True,
    ).max_await_time_ms(200)


def test_a_tailer_is_told_of_every_write(client):
    oplog = client.local["oplog.rs"]
    c = client.oplog_of_tools.c
    c.drop()
    c.insert_one({"_id": "begin"})
    begin = last(oplog)

    def write():
        for i in range(300):
            c.insert_one({"_id": i})
            if i % 3 == 0:
                c.update_one({"_id": i}, {"$set": {"x": i}})
            if i % 5 == 0:
                c.delete_one({"_id": i})

    writer = threading.Thread(target=write)
    writer.start()
    want = 300 + 100 + 60
    told = []
    while len(told) < want:
        # It loses its connection again and again.
        cursor = follow(oplog, told[-1]["ts"] if told else begin)
        for n, entry in enumerate(cursor):
            told.append(entry)
            if n > 50 or len(told) == want:
                break
        cursor.close()
    writer.join()
    assert [e["o"]["_id"] for e in told if e["op"] == "i"] == list(range(300))
    times = [e["ts"] for e in told]
    assert times == sorted(set(times))
    assert sum(e["op"] == "u" for e in told) == 100
    assert next(e for e in told if e["op"] == "u")["o"] == {"$v": 2, "diff": {"i": {"x": 0}}}
    assert not list(oplog.find({"ts": {"$gt": last(oplog)}}))


def test_what_is_inserted_at_once_is_one_entry(client):
    oplog = client.local["oplog.rs"]
    c = client.oplog_of_tools.many
    c.drop()
    c.insert_one({"_id": "begin"})
    begin = last(oplog)
    c.insert_many([{"_id": i} for i in range(1000)])
    c.delete_many({})
    after = list(oplog.find({"ts": {"$gt": begin}, "o.applyOps.ns": c.full_name}))
    told = [[op["op"] for op in e["o"]["applyOps"]] for e in after]
    # A statement over many documents commits some hundred at a time.
    assert told[0] == ["i"] * 1000, [len(t) for t in told]
    assert sum(told[1:], []) == ["d"] * 1001, [len(t) for t in told]


def test_it_is_read_as_any_collection(client):
    oplog = client.local["oplog.rs"]
    c = client.oplog_of_tools.read
    c.drop()
    for i in range(10):
        c.insert_one({"_id": i, "k": i % 2})
    mine = {"ns": c.full_name, "op": "i", "ts": {"$gte": oplog.find_one({"o.create": "read"}, sort=[("ts", -1)])["ts"]}}
    assert oplog.count_documents(mine) == 10
    assert oplog.distinct("o.k", mine) == [0, 1]
    groups = oplog.aggregate([{"$match": mine}, {"$group": {"_id": "$o.k", "n": {"$sum": 1}}}])
    assert sorted(g["n"] for g in groups) == [5, 5]
    newest = oplog.find(mine, {"o": 1, "_id": 0}).sort("$natural", pymongo.DESCENDING).limit(1)
    assert list(newest) == [{"o": {"_id": 9, "k": 1}}]
    assert client.local.command("collStats", "oplog.rs")["capped"]
