"""Causal consistency, and what PyMongo does by itself when a command of it fails: on a plain server and on a set."""

import threading

import pymongo
import pytest
from bson import Timestamp

if pymongo.version_tuple < (4, 9):
    pytest.skip("older drivers have no MongoClient.bulk_write", allow_module_level=True)

from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne, monitoring
from pymongo.errors import ClientBulkWriteException, OperationFailure

THREADS, EACH = 6, 20


class Sent(monitoring.CommandListener):
    """The commands that a client sent."""

    def __init__(self):
        self.commands = []

    def started(self, event):
        self.commands.append((event.command_name, event.command))

    def succeeded(self, event):
        pass

    def failed(self, event):
        pass

    def of(self, name):
        return [command for found, command in self.commands if found == name]


@pytest.fixture
def sent():
    return Sent()


@pytest.fixture
def listened(uri, sent):
    # An error that says the server ends makes the driver wait for its next heartbeat.
    settings = {"serverSelectionTimeoutMS": 5000, "heartbeatFrequencyMS": 500}
    with pymongo.MongoClient(uri, event_listeners=[sent], **settings) as c:
        yield c


@pytest.fixture
def on_a_set(client):
    if "setName" not in client.admin.command("hello"):
        pytest.skip("drivers retry on sets alone")


@pytest.fixture
def fail(client):
    """Lets commands fail; with the test that ends."""

    def fail(commands, times=1, **how):
        data = {"failCommands": commands, **how}
        client.admin.command("configureFailPoint", "failCommand", mode={"times": times}, data=data)

    yield fail
    client.admin.command("configureFailPoint", "failCommand", mode="off")


def test_a_session_reads_what_another_client_wrote_before(uri, client, coll, on_a_set):
    coll.insert_one({"_id": 1})
    with pymongo.MongoClient(uri) as other, client.start_session() as writer:
        for i in range(100):
            coll.update_one({"_id": 1}, {"$set": {"i": i}}, session=writer)
            with other.start_session() as reader:
                reader.advance_cluster_time(writer.cluster_time)
                reader.advance_operation_time(writer.operation_time)
                found = other[coll.database.name].c.find_one(session=reader)
                assert found["i"] == i
                assert reader.operation_time >= writer.operation_time


def test_a_time_that_lies_ahead(client, coll, on_a_set):
    told = client.admin.command("ping")["$clusterTime"]
    now = told["clusterTime"]
    ahead = Timestamp(now.time, now.inc + 1000)
    with client.start_session() as session:
        session.advance_operation_time(ahead)
        with pytest.raises(OperationFailure) as refused:
            coll.find_one(session=session)
        assert refused.value.code == 72
        # The same time with the gossip that tells of it moves the server's clock.
        session.advance_cluster_time({"clusterTime": ahead, "signature": told["signature"]})
        assert coll.find_one(session=session) is None
        assert session.operation_time >= ahead


def test_client_bulk_write(client, db):
    ns = f"{db.name}.a"
    done = client.bulk_write(
        [
            InsertOne(namespace=ns, document={"_id": 1}),
            UpdateOne(namespace=f"{db.name}.b", filter={"_id": 5}, update={"$set": {"x": 1}}, upsert=True),
            DeleteOne(namespace=ns, filter={"_id": 9}),
            ReplaceOne(namespace=ns, filter={"_id": 1}, replacement={"y": 1}),
        ],
        verbose_results=True,
    )
    assert (done.inserted_count, done.upserted_count, done.modified_count, done.deleted_count) == (1, 1, 1, 0)
    assert done.update_results[1].upserted_id == 5
    with pytest.raises(ClientBulkWriteException) as failed:
        client.bulk_write([InsertOne(namespace=ns, document={"_id": i}) for i in (1, 2)], ordered=False)
    assert [e["code"] for e in failed.value.write_errors] == [11000]
    assert failed.value.partial_result.inserted_count == 1
    with client.start_session() as session:
        session.start_transaction()
        client.bulk_write([InsertOne(namespace=ns, document={"_id": 3})], session=session)
        session.abort_transaction()
    assert db.a.count_documents({}) == 2


@pytest.mark.parametrize(
    "how",
    [
        {"errorCode": 189, "errorLabels": ["RetryableWriteError"]},
        {"closeConnection": True},
        # Here the first one is done before its reply asks for another.
        {"writeConcernError": {"code": 91, "errmsg": "shutdown", "errorLabels": ["RetryableWriteError"]}},
    ],
)
def test_a_bulk_write_that_is_sent_again_is_done_once(listened, sent, db, fail, on_a_set, how):
    db.n.insert_one({"_id": 1, "n": 0})
    fail(["bulkWrite"], **how)
    done = listened.bulk_write(
        [
            UpdateOne(namespace=f"{db.name}.n", filter={"_id": 1}, update={"$inc": {"n": 1}}),
            InsertOne(namespace=f"{db.name}.m", document={"_id": 1}),
        ]
    )
    first, second = sent.of("bulkWrite")
    assert (first["lsid"], first["txnNumber"]) == (second["lsid"], second["txnNumber"])
    assert (done.modified_count, done.inserted_count) == (1, 1)
    assert list(db.n.find()) == [{"_id": 1, "n": 1}]
    assert db.m.count_documents({}) == 1


TRANSIENT = {"errorLabels": ["TransientTransactionError"]}
UNKNOWN = {"errorLabels": ["UnknownTransactionCommitResult", "RetryableWriteError"]}


@pytest.mark.parametrize(
    ("command", "times", "how", "runs", "commits"),
    [
        ("insert", 1, {"errorCode": 112, **TRANSIENT}, 2, 1),
        ("insert", 1, {"errorCode": 189}, 2, 1),
        ("update", 2, {"errorCode": 251, **TRANSIENT}, 3, 1),
        ("update", 1, {"closeConnection": True}, 2, 1),
        ("commitTransaction", 1, {"errorCode": 91, "errorLabels": ["RetryableWriteError"]}, 1, 2),
        ("commitTransaction", 1, {"closeConnection": True}, 1, 2),
        ("commitTransaction", 2, {"errorCode": 91, **UNKNOWN}, 1, 3),
        ("commitTransaction", 1, {"errorCode": 251, **TRANSIENT}, 2, 2),
        ("commitTransaction", 1, {"writeConcernError": {"code": 64, "errmsg": "timed out"}}, 1, 2),
    ],
)
def test_with_transaction_runs_again(listened, sent, db, fail, command, times, how, runs, commits):
    ran = 0

    def body(session):
        nonlocal ran
        ran += 1
        c = listened[db.name].c
        c.insert_one({"_id": 1, "n": 0}, session=session)
        c.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)

    fail([command], times, **how)
    with listened.start_session() as session:
        session.with_transaction(body)
    assert (ran, len(sent.of("commitTransaction"))) == (runs, commits)
    assert list(db.c.find()) == [{"_id": 1, "n": 1}]


def test_transactions_at_once_leave_the_counter_exact(client, coll):
    coll.insert_one({"_id": 1, "n": 0})

    def run():
        for _ in range(EACH):
            with client.start_session() as session:
                session.with_transaction(lambda s: coll.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=s))

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert coll.find_one() == {"_id": 1, "n": THREADS * EACH}
