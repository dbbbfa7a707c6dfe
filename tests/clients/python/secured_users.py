"""The users that the suites of the step `secured` log in as.

The first is created through the localhost exception, by a client with a certificate and without a login.

Usage: secured_users.py PORT DIRECTORY_OF_THE_CERTIFICATES
"""

import os
import sys

import pymongo

SUBJECT = "CN=client,OU=development,O=Muniment"


def main(port, certificates):
    def file(name):
        return os.path.join(certificates, name)

    def connect(**options):
        return pymongo.MongoClient(
            "localhost",
            int(port),
            directConnection=True,
            serverSelectionTimeoutMS=10000,
            tls=True,
            tlsCAFile=file("ca.pem"),
            tlsCertificateKeyFile=file("client.pem"),
            **options,
        )

    with connect() as c:
        c.admin.command("createUser", "root", pwd="root's password", roles=["root"])
        try:
            c.admin.command("createUser", "second", pwd="x", roles=[])
            raise AssertionError("a second user was created without a login")
        except pymongo.errors.OperationFailure as e:
            assert e.code == 13, e
    with connect(username="root", password="root's password") as c:
        # The suites read and change what only administrators may.
        c.admin.command("createUser", "user", pwd="password", roles=["root"])
        for mechanism in ("SCRAM-SHA-1", "SCRAM-SHA-256"):
            c.secured.command(
                "createUser", mechanism, pwd="pass,=wörd", roles=["readWrite"], mechanisms=[mechanism]
            )
        c["$external"].command("createUser", SUBJECT, roles=[{"role": "readWrite", "db": "secured"}])


if __name__ == "__main__":
    main(*sys.argv[1:])
