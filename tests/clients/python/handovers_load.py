"""The workload of handovers.py over PyMongo with default options."""

import collections
import os
import pathlib
import sys
import threading
import time
import traceback

import pymongo
from pymongo import InsertOne, UpdateOne

THREADS = 4
HANDOVERS = pathlib.Path(os.environ["MUNIMENT_HANDOVERS"])
DB = "handovers"


class Worker(threading.Thread):
    """Goes through all operations in turns, each of which adds one to a counter of its own or stores rows
    with new numbers."""

    def __init__(self, number):
        super().__init__()
        self.number, self.errors = number, []
        self.done = collections.Counter()
        self.client = pymongo.MongoClient(os.environ["MUNIMENT_URI"])
        self.db = self.client[DB]

    def id(self, operation):
        return f"{self.number} {operation}"

    def row(self, operation, i):
        return {"worker": self.number, "operation": operation, "i": i}

    def insert(self, n):
        self.db.load.insert_one(self.row("insert", n))

    def insert_many(self, n):
        self.db.load.insert_many([self.row("insert_many", [n, i]) for i in range(5)])

    def update(self, n):
        self.db.counters.update_one({"_id": self.id("update")}, {"$inc": {"n": 1}}, upsert=True)

    def find_and_modify(self, n):
        self.db.counters.find_one_and_update({"_id": self.id("find_and_modify")}, {"$inc": {"n": 1}}, upsert=True)

    def delete(self, n):
        self.db.gone.insert_one({"_id": self.id(n)})
        assert self.db.gone.delete_one({"_id": self.id(n)}).deleted_count == 1

    def find(self, n):
        assert len(list(self.db.rows.find())) == 100

    def aggregate(self, n):
        [found] = self.db.rows.aggregate([{"$group": {"_id": None, "n": {"$sum": 1}}}])
        assert found["n"] == 100

    def bulk_write(self, n):
        of = self.id("bulk_write")
        inc = UpdateOne({"_id": of}, {"$inc": {"n": 1}}, upsert=True)
        self.db.counters.bulk_write([inc, InsertOne({"_id": f"{of} {n}"})])

    def client_bulk_write(self, n):
        of = self.id("client_bulk_write")
        inc = UpdateOne({"_id": of}, {"$inc": {"n": 1}}, upsert=True, namespace=f"{DB}.counters")
        row = InsertOne(self.row("client_bulk_write", n), namespace=f"{DB}.load")
        self.client.bulk_write([inc, row])

    def transaction(self, n):
        def body(session):
            inc = {"$inc": {"n": 1}}
            self.db.counters.update_one({"_id": self.id("transaction")}, inc, upsert=True, session=session)
            self.db.load.insert_one(self.row("transaction", n), session=session)

        with self.client.start_session() as session:
            session.with_transaction(body)

    def all(self):
        yield from (self.insert, self.insert_many, self.update, self.find_and_modify, self.delete)
        yield from (self.find, self.aggregate, self.bulk_write, self.client_bulk_write, self.transaction)

    def run(self):
        n = 0
        while not (HANDOVERS / "done").exists():
            n += 1
            for operation in self.all():
                name = operation.__name__
                try:
                    operation(n)
                    self.done[name] += 1
                except Exception:
                    self.errors.append(f"{name}: {traceback.format_exc()}")
                time.sleep(0.002)

    def judge(self):
        """Says what was not done exactly once."""
        rows = {"insert": 1, "insert_many": 5, "client_bulk_write": 1, "transaction": 1}
        for operation, each in rows.items():
            found = self.db.load.count_documents({"worker": self.number, "operation": operation})
            if found != self.done[operation] * each:
                yield f"{operation}: {found} rows of {self.done[operation]} operations"
        for operation in ("update", "find_and_modify", "bulk_write", "client_bulk_write", "transaction"):
            found = self.db.counters.find_one({"_id": self.id(operation)})["n"]
            if found != self.done[operation]:
                yield f"{operation}: {found} counted of {self.done[operation]} operations"


def main():
    workers = [Worker(i) for i in range(THREADS)]
    for w in workers:
        w.start()
    while any(len(w.done) < 10 and not w.errors for w in workers):
        time.sleep(0.1)
    (HANDOVERS / "ready").touch()
    for w in workers:
        w.join()
    errors = [e for w in workers for e in w.errors]
    wrong = [] if errors else [e for w in workers for e in w.judge()]
    done = sum(w.done.total() for w in workers)
    print(f"PyMongo {pymongo.version}: {done} operations, {len(errors)} errors")
    print(*errors[:5], *wrong, sep="\n", end="")
    return 1 if errors or wrong else 0


sys.exit(main())
