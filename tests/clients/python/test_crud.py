"""Documents in and out, as an application does it."""

import datetime
import re

import bson
import pymongo
import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure, WriteError

EVERY_TYPE = {
    "double": 1.5,
    "string": "héllo\x00wörld",
    "object": {"a": {"b": 1}},
    "array": [1, "two", None, [3]],
    "binary": Binary(b"\x00\x01\xff", 5),
    "objectid": ObjectId("507f1f77bcf86cd799439011"),
    "true": True,
    "date": datetime.datetime(2021, 3, 4, 5, 6, 7, 891000),
    "null": None,
    "regex": Regex("^a.*z$", "im"),
    "code": Code("function() {}"),
    "code_scope": Code("x", {"x": 1}),
    "int32": 7,
    "timestamp": Timestamp(1234, 5),
    "int64": Int64(2**60),
    "decimal": Decimal128("1.50"),
    "min": MinKey(),
    "max": MaxKey(),
}


def test_every_type_round_trips(coll):
    coll.insert_one(dict(EVERY_TYPE, _id=1))
    found = coll.find_one({"_id": 1})
    del found["_id"]
    assert bson.encode(found) == bson.encode(EVERY_TYPE)
    for name, value in EVERY_TYPE.items():
        if name == "regex":
            continue
        assert coll.count_documents({name: value}) == 1, name


def test_insert_one_adds_and_reports_id(coll):
    r = coll.insert_one({"x": 1})
    assert coll.find_one({"_id": r.inserted_id}) == {"_id": r.inserted_id, "x": 1}
    raw = coll.database.command("insert", coll.name, documents=[{"x": 2}])
    assert raw["n"] == 1
    server_made = coll.find_one({"x": 2})
    assert list(server_made)[0] == "_id" and isinstance(server_made["_id"], ObjectId)


def test_insert_many_and_cursor_batches(coll):
    coll.insert_many([{"_id": i, "s": "x" * 100} for i in range(5000)])
    assert [d["_id"] for d in coll.find().sort("_id", 1).batch_size(7)] == list(range(5000))
    assert coll.estimated_document_count() == 5000
    assert coll.count_documents({"_id": {"$gte": 4990}}) == 10
    assert [d["_id"] for d in coll.find(skip=10, limit=3, sort=[("_id", -1)])] == [4989, 4988, 4987]


def test_large_results_cross_batches_by_size(coll):
    coll.insert_many([{"_id": i, "s": "x" * 1_000_000} for i in range(40)])
    assert sum(len(d["s"]) for d in coll.find()) == 40_000_000


def test_duplicate_key_error_carries_pattern_and_value(coll):
    coll.create_index([("a", 1), ("b", -1)], unique=True)
    coll.insert_one({"a": 1, "b": "x"})
    with pytest.raises(DuplicateKeyError) as e:
        coll.insert_one({"a": 1, "b": "x"})
    d = e.value.details
    assert d["code"] == 11000
    assert d["keyPattern"] == {"a": 1, "b": -1}
    assert d["keyValue"] == {"a": 1, "b": "x"}
    assert "E11000 duplicate key error collection" in d["errmsg"]
    assert 'index: a_1_b_-1 dup key: { a: 1, b: "x" }' in d["errmsg"]


def test_ordered_and_unordered_bulk_errors(coll):
    docs = [{"_id": 1}, {"_id": 1}, {"_id": 2}, {"_id": 1}, {"_id": 3}]
    with pytest.raises(BulkWriteError) as e:
        coll.insert_many([dict(d) for d in docs], ordered=True)
    assert e.value.details["nInserted"] == 1
    assert [w["index"] for w in e.value.details["writeErrors"]] == [1]
    coll.drop()
    with pytest.raises(BulkWriteError) as e:
        coll.insert_many([dict(d) for d in docs], ordered=False)
    assert e.value.details["nInserted"] == 3
    assert [w["index"] for w in e.value.details["writeErrors"]] == [1, 3]


def test_updates(coll):
    coll.insert_many([{"_id": i, "n": i, "tags": ["a"]} for i in range(10)])
    r = coll.update_one({"_id": 3}, {"$inc": {"n": 10}, "$push": {"tags": "b"}})
    assert (r.matched_count, r.modified_count) == (1, 1)
    assert coll.find_one({"_id": 3}) == {"_id": 3, "n": 13, "tags": ["a", "b"]}
    r = coll.update_many({"n": {"$lt": 5}}, {"$set": {"low": True}})
    assert (r.matched_count, r.modified_count) == (4, 4)
    r = coll.update_many({"n": {"$lt": 5}}, {"$set": {"low": True}})
    assert (r.matched_count, r.modified_count) == (4, 0)
    r = coll.update_one({"_id": "new"}, {"$set": {"x": 1}, "$setOnInsert": {"y": 2}}, upsert=True)
    assert r.upserted_id == "new" and coll.find_one({"_id": "new"}) == {"_id": "new", "x": 1, "y": 2}
    r = coll.replace_one({"_id": 0}, {"only": 1})
    assert r.modified_count == 1 and coll.find_one({"_id": 0}) == {"_id": 0, "only": 1}
    assert coll.delete_many({"low": True}).deleted_count == 3
    assert coll.delete_one({}).deleted_count == 1


def test_array_updates(coll):
    coll.insert_one({"_id": 1, "grades": [{"v": 80, "m": 1}, {"v": 90, "m": 2}, {"v": 95, "m": 3}]})
    coll.update_one({"_id": 1, "grades.v": 90}, {"$set": {"grades.$.m": 20}})
    coll.update_one({"_id": 1}, {"$inc": {"grades.$[].m": 100}})
    coll.update_one({"_id": 1}, {"$set": {"grades.$[g].top": True}}, array_filters=[{"g.v": {"$gte": 95}}])
    assert coll.find_one()["grades"] == [
        {"v": 80, "m": 101},
        {"v": 90, "m": 120},
        {"v": 95, "m": 103, "top": True},
    ]
    coll.update_one({"_id": 1}, {"$push": {"grades": {"$each": [{"v": 1}], "$sort": {"v": 1}, "$slice": 2}}})
    assert [g["v"] for g in coll.find_one()["grades"]] == [1, 80]


def test_update_errors(coll):
    coll.insert_one({"_id": 1, "s": "text"})
    for update, code in [
        ({"$inc": {"s": 1}}, 14),
        ({"$set": {"_id": 2}}, 66),
        ({"$set": {"a": 1}, "$unset": {"a": 1}}, 40),
        ({"$set": {"s.x": 1}}, 28),
        ({"$bogus": {"a": 1}}, 9),
    ]:
        with pytest.raises(WriteError) as e:
            coll.update_one({"_id": 1}, update)
        assert e.value.code == code, update


def test_bulk_write(coll):
    r = coll.bulk_write(
        [
            InsertOne({"_id": 1, "x": 1}),
            InsertOne({"_id": 2, "x": 1}),
            UpdateOne({"_id": 1}, {"$set": {"x": 5}}),
            UpdateMany({"x": {"$gte": 1}}, {"$inc": {"x": 1}}),
            ReplaceOne({"_id": 9}, {"z": 1}, upsert=True),
            DeleteOne({"_id": 2}),
            DeleteMany({"none": 1}),
        ]
    )
    assert (r.inserted_count, r.matched_count, r.modified_count) == (2, 3, 3)
    assert (r.deleted_count, r.upserted_ids) == (1, {4: 9})
    assert list(coll.find().sort("_id", 1)) == [{"_id": 1, "x": 6}, {"_id": 9, "z": 1}]


def test_find_and_modify_forms(coll):
    coll.insert_many([{"_id": i, "p": i % 3} for i in range(6)])
    before = coll.find_one_and_update({"p": 0}, {"$set": {"t": 1}}, sort=[("_id", -1)])
    assert before == {"_id": 3, "p": 0}
    after = coll.find_one_and_update(
        {"_id": 3}, {"$inc": {"t": 1}}, projection={"t": 1, "_id": 0}, return_document=True
    )
    assert after == {"t": 2}
    made = coll.find_one_and_replace({"_id": 77}, {"n": 1}, upsert=True, return_document=True)
    assert made == {"_id": 77, "n": 1}
    assert coll.find_one_and_delete({"p": 1}, sort=[("_id", 1)]) == {"_id": 1, "p": 1}
    assert coll.find_one_and_delete({"p": 99}) is None


def test_query_operators(coll):
    coll.insert_many(
        [
            {"_id": 1, "a": 1, "t": ["x", "y"], "o": {"k": 1}},
            {"_id": 2, "a": 2.0, "t": ["y", "z"], "o": {"k": 2}},
            {"_id": 3, "a": Int64(3), "t": [], "s": "hello"},
            {"_id": 4, "a": None, "items": [{"q": 1, "r": 5}, {"q": 2, "r": 1}]},
            {"_id": 5, "s": "HELLO"},
        ]
    )

    def ids(q):
        return [d["_id"] for d in coll.find(q).sort("_id", 1)]

    assert ids({"a": {"$gt": 1}}) == [2, 3]
    assert ids({"a": None}) == [4, 5]
    assert ids({"a": {"$exists": True}}) == [1, 2, 3, 4]
    assert ids({"a": {"$in": [1, 3]}}) == [1, 3]
    assert ids({"a": {"$nin": [1, 3]}}) == [2, 4, 5]
    assert ids({"t": "y"}) == [1, 2]
    assert ids({"t": {"$all": ["y", "z"]}}) == [2]
    assert ids({"t": {"$size": 0}}) == [3]
    assert ids({"o.k": {"$gte": 1}}) == [1, 2]
    assert ids({"items": {"$elemMatch": {"q": 1, "r": 1}}}) == []
    assert ids({"items.q": 1, "items.r": 1}) == [4]
    assert ids({"s": re.compile("^hel", re.I)}) == [3, 5]
    assert ids({"s": {"$not": {"$regex": "^hel"}}}) == [1, 2, 4, 5]
    assert ids({"$or": [{"a": 1}, {"s": "HELLO"}]}) == [1, 5]
    assert ids({"a": {"$type": "number"}}) == [1, 2, 3]
    assert ids({"a": {"$mod": [2, 1]}}) == [1, 3]
    assert ids({"$expr": {"$gt": ["$o.k", 1]}}) == [2]
    assert ids({"a": {"$bitsAllSet": [0, 1]}}) == [3]


def test_projections(coll):
    coll.insert_one({"_id": 1, "a": 1, "b": {"c": 2, "d": 3}, "arr": [{"x": 1, "y": 1}, {"x": 2, "y": 2}]})
    assert coll.find_one({}, {"a": 1}) == {"_id": 1, "a": 1}
    assert coll.find_one({}, {"_id": 0, "b.c": 1}) == {"b": {"c": 2}}
    assert coll.find_one({}, {"arr": 0, "b": 0}) == {"_id": 1, "a": 1}
    assert coll.find_one({"arr.x": 2}, {"arr.$": 1}) == {"_id": 1, "arr": [{"x": 2, "y": 2}]}
    assert coll.find_one({}, {"arr": {"$slice": -1}, "a": 1})["arr"] == [{"x": 2, "y": 2}]
    assert coll.find_one({}, {"arr": {"$elemMatch": {"y": 1}}})["arr"] == [{"x": 1, "y": 1}]
    assert coll.find_one({}, {"_id": 0, "twice": {"$multiply": ["$a", 2]}}) == {"twice": 2}
    with pytest.raises(OperationFailure):
        coll.find_one({}, {"a": 1, "b": 0})


def test_sort_across_types(coll):
    values = [MinKey(), None, 1, 2.5, Int64(3), "a", {"x": 1}, [0.5], b"bin", ObjectId(), True,
              datetime.datetime(2020, 1, 1), MaxKey()]
    coll.insert_many([{"_id": i, "v": v} for i, v in enumerate(values)])
    order = [d["_id"] for d in coll.find().sort("v", 1)]
    # [0.5] sorts by its least element, before 1
    assert order == [0, 1, 7, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12]
    assert [d["_id"] for d in coll.find().sort("v", -1)] == order[::-1]


def test_aggregate_basics(coll):
    coll.insert_many([{"_id": i, "k": i % 3, "v": i, "l": [1, 2]} for i in range(9)])
    got = list(coll.aggregate([
        {"$match": {"v": {"$gte": 3}}},
        {"$group": {"_id": "$k", "n": {"$sum": 1}, "total": {"$sum": "$v"}, "avg": {"$avg": "$v"}}},
        {"$sort": {"_id": 1}},
    ]))
    assert got == [
        {"_id": 0, "n": 2, "total": 9, "avg": 4.5},
        {"_id": 1, "n": 2, "total": 11, "avg": 5.5},
        {"_id": 2, "n": 2, "total": 13, "avg": 6.5},
    ]
    assert list(coll.aggregate([{"$unwind": "$l"}, {"$count": "n"}])) == [{"n": 18}]
    assert list(coll.aggregate([{"$sort": {"v": -1}}, {"$skip": 1}, {"$limit": 2},
                                {"$project": {"_id": 0, "d": {"$add": ["$v", 1]}}}])) == [{"d": 8}, {"d": 7}]


def test_distinct(coll):
    coll.insert_many([{"a": [1, 2]}, {"a": 2.0}, {"a": "x"}, {"b": 1}])
    assert sorted(coll.distinct("a"), key=str) == [1, 2, "x"]
    assert coll.distinct("a", {"a": "x"}) == ["x"]


def test_too_large_document_is_refused(coll):
    with pytest.raises(Exception) as e:
        coll.insert_one({"s": "x" * (16 * 1024 * 1024)})
    assert "arge" in str(e.value)
    assert coll.count_documents({}) == 0
    coll.insert_one({"_id": 1, "s": "x" * (15 * 1024 * 1024)})
    with pytest.raises(WriteError) as e:
        coll.update_one({"_id": 1}, {"$set": {"t": "x" * (2 * 1024 * 1024)}})
    assert e.value.code in (10334, 17419)
    assert pymongo.version
