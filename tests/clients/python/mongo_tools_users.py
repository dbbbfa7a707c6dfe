"""mongodump and mongorestore of users and roles, between two servers with logins and TLS, both ways.

Usage: mongo_tools_users.py DIRECTORY_WITH_THE_TOOLS PORT OTHER_PORT CA_FILE

Both servers have the user `user` with the password `password` (see secured_users.py).
"""

import os
import subprocess
import sys
import tempfile

import pymongo


def main(directory, port, other_port, ca):
    def tool(name, port, *args):
        path = os.path.join(directory, name) if directory else name
        login = ["--username", "user", "--password", "password", "--authenticationDatabase", "admin"]
        tls = ["--host", "localhost", "--port", port, "--ssl", "--sslCAFile", ca]
        r = subprocess.run([path, *tls, *login, *args], capture_output=True, text=True, timeout=120)
        assert r.returncode == 0, f"{name} {args}: exit {r.returncode}\n{r.stdout}\n{r.stderr}"
        assert "WARNING" not in r.stderr, r.stderr

    def connect(port, **login):
        login = login or {"username": "user", "password": "password"}
        return pymongo.MongoClient(
            "localhost", int(port), tls=True, tlsCAFile=ca, serverSelectionTimeoutMS=5000, **login
        )

    def works(port, name, password):
        with connect(port, username=name, password=password, authSource="moved") as c:
            return c.moved.c.count_documents({})

    def refused(port, name, password):
        try:
            works(port, name, password)
        except pymongo.errors.OperationFailure as e:
            assert e.code == 18, e
            return True
        return False

    def names(c):
        return [sorted(d["_id"] for d in c.admin[f"system.{kind}"].find()) for kind in ("users", "roles")]

    for step, (here, there) in enumerate([(port, other_port), (other_port, port)]):
        name = f"mover-{step}"
        with connect(here) as c, connect(there) as other, tempfile.TemporaryDirectory() as scratch:
            c.moved.c.insert_one({"step": step})
            resource = {"db": "moved", "collection": "c"}
            c.moved.command(
                "createRole", name, roles=[], privileges=[{"resource": resource, "actions": ["find"]}]
            )
            c.moved.command("createUser", name, pwd="first", roles=[name], customData={"step": step})
            dump = os.path.join(scratch, "all")
            tool("mongodump", here, "--out", dump)
            # A user of the target is replaced by one of the same name, and keeps what only the target has.
            other.moved.command("createUser", name, pwd="other", roles=[])
            other.moved.command("createUser", f"only-{step}", pwd="x", roles=[])
            tool("mongorestore", there, "--nsInclude", "admin.*", "--nsInclude", "moved.*", dump)
            assert works(there, name, "first") == c.moved.c.count_documents({})
            assert refused(there, name, "other")
            assert f"moved.only-{step}" in names(other)[0]
            info = other.moved.command("usersInfo", name, showCredentials=True)["users"][0]
            assert info["customData"] == {"step": step} and len(info["credentials"]) == 2
            assert not [n for n in other.admin.list_collection_names() if n.startswith("temp")]

            # Only the users and roles of one database, as an archive.
            archive = os.path.join(scratch, "moved.gz")
            tool("mongodump", here, "--db", "moved", "--dumpDbUsersAndRoles", f"--archive={archive}", "--gzip")
            other.moved.command("updateUser", name, pwd="third")
            restore = ["--db", "moved", "--restoreDbUsersAndRoles", f"--archive={archive}", "--gzip"]
            tool("mongorestore", there, "--drop", *restore)
            assert works(there, name, "first") == c.moved.c.count_documents({})
            users, roles = names(other)
            assert f"moved.only-{step}" not in users and "admin.user" in users and f"moved.{name}" in roles

            # With --drop the target has what the dump has.
            tool("mongodump", here, "--out", dump + "-again")
            other.moved.command("createUser", "gone", pwd="x", roles=[])
            tool("mongorestore", there, "--drop", "--nsInclude", "admin.*", dump + "-again")
            assert names(other) == names(c)
    print("mongodump and mongorestore of users and roles: ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
