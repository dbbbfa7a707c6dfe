"""A pytest plugin that divides the collections of the tests by a hash of `_id`.

`cargo xtask conformance --divided` loads it through PYTEST_PLUGINS, in each process that runs
tests. A collection is divided before the first command that writes to it or makes an index, and
after the command that creates it. What cannot be divided, such as a view, stays as it is.
"""

import threading

import pymongo
from pymongo import monitoring

FIRST_USES = {"insert", "update", "findAndModify", "createIndexes"}
UNDIVIDED = {"admin", "config", "local"}


class Divider(monitoring.CommandListener):
    """Divides collections as the commands of the tests need it."""

    def __init__(self, uri):
        self.uri = uri
        self.known = set()
        self.within = threading.local()
        self.client = None

    def _divide(self, db, name):
        if db in UNDIVIDED or not isinstance(name, str) or name.startswith("system."):
            return
        if (db, name) in self.known:
            return
        self.known.add((db, name))
        self.within.own = True
        try:
            if self.client is None:
                self.client = pymongo.MongoClient(self.uri)
            command = {"shardCollection": f"{db}.{name}", "key": {"_id": "hashed"}}
            self.client.admin.command(command, collation={"locale": "simple"})
        except pymongo.errors.PyMongoError:
            pass
        finally:
            self.within.own = False

    def started(self, event):
        if getattr(self.within, "own", False):
            return
        db, command = event.database_name, event.command
        if event.command_name in FIRST_USES:
            self._divide(db, command.get(event.command_name))
        elif event.command_name == "create":
            self.within.creates = (db, command.get("create"))
        elif event.command_name == "drop":
            self.known.discard((db, command.get("drop")))
        elif event.command_name == "dropDatabase":
            self.known = {known for known in self.known if known[0] != db}

    def succeeded(self, event):
        if event.command_name == "create" and not getattr(self.within, "own", False):
            self._divide(*self.within.creates)

    def failed(self, event):
        pass


def pytest_configure(config):
    uri = config.getoption("--connection-string", default=None)
    if uri:
        monitoring.register(Divider(uri))
