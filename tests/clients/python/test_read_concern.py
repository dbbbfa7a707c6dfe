"""Read concerns that MongoDB has on sets alone, on a plain server."""

import pymongo
import pytest
from pymongo.read_concern import ReadConcern

CURRENT = pymongo.version_tuple >= (4, 0)


@pytest.mark.skipif(not CURRENT, reason="older drivers have no snapshot sessions")
def test_a_snapshot_session_reads_at_one_point(client, coll):
    coll.insert_many([{"_id": i, "k": i % 2} for i in range(10)])
    with client.start_session(snapshot=True) as session:
        assert len(list(coll.find({}, session=session, batch_size=3))) == 10
        coll.delete_many({"_id": {"$lt": 5}})
        coll.insert_one({"_id": 100, "k": 7})
        assert len(list(coll.find({}, session=session))) == 10
        assert coll.distinct("k", session=session) == [0, 1]
        grouped = coll.aggregate([{"$group": {"_id": "$k", "n": {"$sum": 1}}}], session=session)
        assert sorted((g["_id"], g["n"]) for g in grouped) == [(0, 5), (1, 5)]
    assert coll.count_documents({}) == 6


@pytest.mark.parametrize("level", ["local", "available", "majority", "linearizable", "snapshot"])
def test_every_level_is_taken(coll, level):
    coll.insert_one({"_id": 1})
    read = coll.with_options(read_concern=ReadConcern(level))
    assert read.find_one({"_id": 1}) == {"_id": 1}
    assert list(read.aggregate([{"$match": {"_id": 1}}])) == [{"_id": 1}]
