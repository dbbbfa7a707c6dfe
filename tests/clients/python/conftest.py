"""Fixtures of the PyMongo suite. It runs against the server that MUNIMENT_URI names."""

import os

import pymongo
import pytest


@pytest.fixture(scope="session")
def uri():
    return os.environ["MUNIMENT_URI"]


@pytest.fixture(scope="session")
def client(uri):
    with pymongo.MongoClient(uri, serverSelectionTimeoutMS=5000) as c:
        yield c


@pytest.fixture
def db(client, request):
    name = "py_" + request.node.name.replace("[", "_").replace("]", "_").replace("-", "_")[:50]
    client.drop_database(name)
    yield client[name]
    client.drop_database(name)


@pytest.fixture
def coll(db):
    return db.c
