"""Logins over TLS: each mechanism, and what is refused. MUNIMENT_PORT and MUNIMENT_CERTS say where."""

import os

import pymongo
import pytest
from pymongo.errors import ConnectionFailure, OperationFailure, ServerSelectionTimeoutError

CERTS = os.environ["MUNIMENT_CERTS"]
SUBJECT = "CN=client,OU=development,O=Muniment"
LOGINS = {
    name: {"username": name, "password": "pass,=wörd", "authSource": "secured", "authMechanism": name}
    for name in ("SCRAM-SHA-1", "SCRAM-SHA-256")
}
LOGINS["MONGODB-X509"] = {
    "tlsCertificateKeyFile": os.path.join(CERTS, "client.pem"),
    "authMechanism": "MONGODB-X509",
}


# How long a client looks for a server that refuses its connections. Others have the driver's own 30 s: on a busy
# machine a first login may take some seconds.
REFUSED_MS = 3000


def connect(**options):
    options = {"tls": True, "tlsCAFile": os.path.join(CERTS, "ca.pem"), **options}
    options.setdefault("replicaSet", os.environ.get("MUNIMENT_SET"))
    options = {k: v for k, v in options.items() if v is not None}
    port = int(os.environ["MUNIMENT_PORT"])
    return pymongo.MongoClient("localhost", port, **options)


def code(client):
    """The code with which a command fails."""
    with client, pytest.raises(OperationFailure) as e:
        client.secured.c.find_one()
    return e.value.code


@pytest.mark.parametrize("mechanism", LOGINS)
def test_logged_in(mechanism):
    with connect(**LOGINS[mechanism]) as c:
        status = c.admin.command("connectionStatus")["authInfo"]
        user = SUBJECT if mechanism == "MONGODB-X509" else mechanism
        assert [u["user"] for u in status["authenticatedUsers"]] == [user]
        coll = c.secured["py_" + mechanism]
        coll.drop()
        with coll.watch() as stream:
            with c.start_session() as session, session.start_transaction():
                coll.insert_many([{"_id": i, "text": "x" * 1000} for i in range(500)], session=session)
            assert [stream.next()["documentKey"]["_id"] for _ in range(3)] == [0, 1, 2]
        assert sum(1 for _ in coll.find(batch_size=50)) == 500
        assert coll.update_many({"_id": {"$lt": 9}}, {"$set": {"a": 1}}).modified_count == 9
        assert coll.delete_many({}).deleted_count == 500
        # The roles of these users are for this database alone.
        with pytest.raises(OperationFailure) as e:
            c.other.c.insert_one({})
        assert e.value.code == 13
        coll.drop()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256"])
def test_refused_logins(mechanism):
    login = LOGINS[mechanism]
    assert code(connect(**{**login, "password": "wrong"})) == 18
    assert code(connect(**{**login, "username": "nobody"})) == 18
    assert code(connect(**{**login, "authSource": "admin"})) == 18
    other = {"SCRAM-SHA-1": "SCRAM-SHA-256", "SCRAM-SHA-256": "SCRAM-SHA-1"}[mechanism]
    assert code(connect(**{**login, "authMechanism": other})) == 18


def test_refused_without_a_login():
    assert code(connect()) == 13
    # A certificate alone is no login, and one that is not shown cannot be.
    assert code(connect(tlsCertificateKeyFile=os.path.join(CERTS, "client.pem"))) == 13
    assert code(connect(authMechanism="MONGODB-X509")) == 18
    bad = {"username": "CN=other", "authMechanism": "MONGODB-X509", "authSource": "$external"}
    assert code(connect(tlsCertificateKeyFile=os.path.join(CERTS, "client.pem"), **bad)) == 18


@pytest.mark.parametrize(
    "options",
    [
        {"tls": None, "tlsCAFile": None},
        {"tlsCAFile": None},
        # The server's own certificate is that of no CA.
        {"tlsCAFile": os.path.join(CERTS, "server.pem")},
    ],
    ids=["plain", "unknown CA", "another CA"],
)
def test_refused_connections(options):
    with connect(serverSelectionTimeoutMS=REFUSED_MS, **options) as c, pytest.raises((ConnectionFailure, ServerSelectionTimeoutError)):
        c.admin.command("ping")
