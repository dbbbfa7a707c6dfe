"""A pytest plugin that writes every test's outcome to a file as the tests run.

`cargo xtask conformance` loads it through PYTEST_PLUGINS, so that the second pytest process that
the suite starts for its sequential tests loads it too. A line of the file is: outcome (passed,
failed or skipped), the test's id, the cause; separated by tabs. A test may have more than one
line (set-up, call, tear-down): the worst counts.
"""

import os

LONGEST_CAUSE = 600


def _escaped(text):
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\r", "\\r").replace("\n", "\\n")


def _cause(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return crash.message
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[-1])
    return str(report.longrepr)


class Recorder:
    """Appends to one file; every line is flushed, so that a killed run leaves what it saw."""

    def __init__(self, path):
        self.out = open(path, "a", encoding="utf-8", errors="backslashreplace")

    def pytest_runtest_logreport(self, report):
        if report.passed and report.when != "call":
            return
        cause = "" if report.passed else _cause(report)[:LONGEST_CAUSE]
        fields = [report.outcome, report.nodeid, cause]
        self.out.write("\t".join(_escaped(f) for f in fields) + "\n")
        self.out.flush()


def pytest_configure(config):
    path = os.environ.get("MUNIMENT_CONFORMANCE_RECORD")
    # Under xdist only the controller records: every worker's report comes to it.
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(path), "muniment-conformance-recorder")
