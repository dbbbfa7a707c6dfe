"""Change streams over what is not a plain collection."""

import pymongo
import pytest

CURRENT = pymongo.version_tuple >= (4, 3)


def events(stream, count):
    found = []
    while len(found) < count:
        event = stream.try_next()
        if event is not None:
            found.append(event)
    assert stream.try_next() is None
    return [(e["operationType"], e["ns"].get("coll"), e.get("nsType")) for e in found]


@pytest.mark.skipif(not CURRENT, reason="older drivers do not ask for expanded events")
def test_views_and_time_series_are_told_of_by_their_definitions(db):
    stream = db.watch(show_expanded_events=True, max_await_time_ms=100)
    plain = db.watch(max_await_time_ms=100)
    of_view = db.v.watch(show_expanded_events=True, max_await_time_ms=100)
    db.create_collection("base")
    db.command("create", "v", viewOn="base", pipeline=[])
    db.command("collMod", "v", viewOn="base", pipeline=[{"$match": {"a": 1}}])
    db.v.drop()
    db.create_collection("ts", timeseries={"timeField": "t"})
    db.command("collMod", "ts", timeseries={"granularity": "minutes"})
    db.ts.drop()
    db.base.drop()
    assert events(stream, 8) == [
        ("create", "base", "collection"),
        ("create", "v", "view"),
        ("modify", "v", None),
        ("drop", "v", None),
        ("create", "ts", "timeseries"),
        ("modify", "ts", None),
        ("drop", "ts", None),
        ("drop", "base", None),
    ]
    assert events(plain, 1) == [("drop", "base", None)]
    assert events(of_view, 0) == []


@pytest.mark.skipif(not CURRENT, reason="older drivers do not ask for expanded events")
def test_what_a_transaction_makes_is_told_with_its_commit(client, db):
    db.base.insert_one({"_id": 0})
    stream = db.watch(show_expanded_events=True, max_await_time_ms=100)
    with client.start_session() as session:
        session.start_transaction()
        db.kept.insert_one({"_id": 1}, session=session)
        db.base.insert_one({"_id": 1})
        session.commit_transaction()
        session.start_transaction()
        db.given_up.insert_one({"_id": 1}, session=session)
        session.abort_transaction()
        session.start_transaction()
        db.create_collection("empty", session=session)
        session.commit_transaction()
    assert events(stream, 4) == [
        ("insert", "base", None),
        ("create", "kept", "collection"),
        ("insert", "kept", None),
        ("create", "empty", "collection"),
    ]
