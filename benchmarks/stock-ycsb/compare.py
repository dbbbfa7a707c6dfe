#!/usr/bin/env python3
"""Stock YCSB beside `muniment bench ycsb`: same properties, same server. See README.md."""

import argparse
import collections
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import samples
import wire

DRIVER = "3.12.14"
CORE = "0.17.0"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>stock</groupId><artifactId>ycsb</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>site.ycsb</groupId><artifactId>core</artifactId><version>{CORE}</version></dependency>
    <dependency><groupId>org.mongodb</groupId><artifactId>mongo-java-driver</artifactId><version>{DRIVER}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
SIDES = ("stock", "muniment")


def say(text):
    print(text, flush=True)


def build(checkout, work):
    """The binding compiled against the released core; gives the class path."""
    source = checkout / "mongodb/src/main/java/site/ycsb/db"
    java = work / "java"
    (java / "classes").mkdir(parents=True)
    (java / "pom.xml").write_text(POM)
    subprocess.run(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"],
        cwd=java, check=True,
    )
    files = [source / "MongoDbClient.java", source / "OptionsSupport.java"]
    subprocess.run(
        ["javac", "-nowarn", "-d", "classes", "-cp", "lib/*", *map(str, files)],
        cwd=java, check=True,
    )
    return f"{java}/classes:{java}/lib/*"


class Server:
    """A fresh server in a directory of its own, on a free port."""

    def __init__(self, binary, data):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="ycsb-", dir=data))
        port_file = self.directory / "port"
        (self.directory / "db").mkdir()
        self.process = subprocess.Popen(
            [binary, "serve", "--dbpath", str(self.directory / "db"), "--port", "0",
             "--portFile", str(port_file), "--nounixsocket", "--quiet"],
            stdout=subprocess.DEVNULL,
        )
        for _ in range(400):
            if port_file.exists() and port_file.read_text().strip():
                self.port = int(port_file.read_text())
                return
            if self.process.poll() is not None:
                sys.exit("the server has ended")
            time.sleep(0.05)
        sys.exit("the server was not ready after 20 s")

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


class Runner:
    """Runs either client with the same properties."""

    def __init__(self, options, class_path):
        self.o = options
        self.class_path = class_path

    def __call__(self, side, phase, workload, threads, port, **properties):
        """Gives wall clock seconds and CPU seconds of the client's process."""
        file = self.o.ycsb / "workloads" / f"workload{workload}"
        p = {
            "mongodb.url": f"mongodb://127.0.0.1:{port}/ycsb?w=1&maxPoolSize={max(threads, 100)}",
            "recordcount": self.o.records,
            "threadcount": threads,
            "fieldcount": 10,
            "fieldlength": 100,
            **properties,
        }
        if side == "stock":
            # The Java client takes its number of threads from this option alone.
            command = ["java", "-cp", self.class_path, "site.ycsb.Client",
                       "-load" if phase == "load" else "-t",
                       "-db", "site.ycsb.db.MongoDbClient", "-threads", str(threads)]
        else:
            command = [self.o.muniment, "bench", "ycsb", phase, "--format", "ycsb",
                       "--data", str(self.o.data)]
        command += ["-P", str(file)]
        for name, value in p.items():
            command += ["-p", f"{name}={value}"]
        begin = time.monotonic()
        log = self.o.work / "client.log"
        with open(log, "w") as out:
            child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        text = log.read_text()
        if child.returncode or "[OVERALL]" not in text or "Return=ERROR" in text:
            sys.exit(f"{side} {phase} {workload} failed:\n{text[-3000:]}")
        return time.monotonic() - begin, usage.ru_utime + usage.ru_stime


def shape(document):
    """Everything about a document but its values: _id, then fields by name."""
    return tuple(
        (name, kind, value[0], len(value[1])) if kind == 5 else (name, kind, value)
        for name, kind, value in sorted(document)
    )


def same_documents(o, run):
    """Loads with both clients and compares what is stored."""
    out = []
    for integrity in (False, True):
        stored = {}
        orders = {}
        for side in SIDES:
            server = Server(o.muniment, o.data)
            try:
                run(side, "load", "a", o.threads[-1], server.port,
                    dataintegrity="true" if integrity else "false")
                client = wire.Client(server.port)
                stored[side] = {
                    wire.get(d, "_id"): d for d in client.documents("ycsb", "usertable")
                }
                orders[side] = collections.Counter(
                    tuple(n for n, _, _ in d) for d in stored[side].values()
                ).most_common(1)[0][0]
            finally:
                server.close()
        a, b = (stored[s] for s in SIDES)
        result = {
            "dataintegrity": integrity,
            "documents": {s: len(stored[s]) for s in SIDES},
            "same_keys": a.keys() == b.keys(),
            "same_fields_types_lengths": a.keys() == b.keys()
            and all(shape(a[k]) == shape(b[k]) for k in a),
            "documents_with_identical_values": sum(
                sorted(a[k]) == sorted(b[k]) for k in a.keys() & b.keys()
            ),
            "field_order": {s: list(orders[s]) for s in SIDES},
        }
        out.append(result)
        say(f"  dataintegrity={str(integrity).lower()}: {result['documents']}, "
            f"same keys {result['same_keys']}, same names, types and lengths "
            f"{result['same_fields_types_lengths']}, byte-identical values in "
            f"{result['documents_with_identical_values']}")
    return out


class Requests:
    """What a recorder saw, counted."""

    def __init__(self, recorder):
        self.reads = collections.Counter()
        self.updates = collections.Counter()
        self.fields = collections.Counter()
        self.others = collections.Counter()
        self.read_shape = None
        self.update_shape = None
        for name, body, sections in recorder.messages():
            if name == "find":
                self.reads[wire.get(wire.get(body, "filter"), "_id")] += 1
                self.read_shape = self.read_shape or [n for n, _, _ in body]
            elif name == "update":
                updates = sections.get("updates") or [
                    d for _, _, d in wire.get(body, "updates")
                ]
                for u in updates:
                    self.updates[wire.get(wire.get(u, "q"), "_id")] += 1
                    for field, _, _ in wire.get(wire.get(u, "u"), "$set"):
                        self.fields[field] += 1
                self.update_shape = self.update_shape or [n for n, _, _ in body]
            else:
                self.others[name] += 1


def recorded(o, run, side, workload, threads, **properties):
    server = Server(o.muniment, o.data)
    try:
        run("muniment", "load", workload, 4, server.port)
        recorder = wire.Recorder(server.port)
        run(side, "run", workload, threads, recorder.port,
            operationcount=o.operations, **properties)
        recorder.close()
        return Requests(recorder)
    finally:
        server.close()


def top(counter, n=5):
    total = sum(counter.values())
    return [[k, round(v / total, 5)] for k, v in counter.most_common(n)]


def same_requests(o, run, workload, threads):
    r = {s: recorded(o, run, s, workload, threads) for s in SIDES}
    a, b = (r[s] for s in SIDES)
    mix = {s: {"read": sum(r[s].reads.values()), "update": sum(r[s].updates.values())}
           for s in SIDES}
    out = {
        "workload": workload,
        "threads": threads,
        "operations": o.operations,
        "mix": mix,
        "mix_test": samples.two_samples(mix["stock"], mix["muniment"]),
        "reads": samples.two_samples(a.reads, b.reads),
        "updates": samples.two_samples(a.updates, b.updates),
        "fields": samples.two_samples(a.fields, b.fields),
        "hottest_reads": {s: top(r[s].reads) for s in SIDES},
        "hottest_updates": {s: top(r[s].updates) for s in SIDES},
        "keys_touched": {s: len(r[s].reads.keys() | r[s].updates.keys()) for s in SIDES},
        "field_counts": {s: dict(sorted(r[s].fields.items())) for s in SIDES},
        "read_command": {s: r[s].read_shape for s in SIDES},
        "update_command": {s: r[s].update_shape for s in SIDES},
        "other_commands": {s: dict(r[s].others) for s in SIDES},
    }
    say(f"  workload {workload}, {threads} threads: " + "; ".join(
        f"{what} p = {out[what]['p']:.3f} ({out[what]['classes']} classes)"
        for what in ("mix_test", "reads", "updates", "fields") if out[what]["p"] is not None))
    for s in SIDES:
        say(f"    {s:9}{mix[s]}  hottest reads " + ", ".join(
            f"{k} {100 * v:.2f} %" for k, v in out["hottest_reads"][s][:3]))
    return out


def control(o, run):
    """What the test says of two distributions that do differ."""
    zipfian = recorded(o, run, "stock", "b", 4)
    uniform = recorded(o, run, "muniment", "b", 4, requestdistribution="uniform")
    out = samples.two_samples(zipfian.reads, uniform.reads)
    say(f"  control, stock zipfian against ours uniform: p = {out['p']:.3g}")
    return out


def cpu(o, run, workload, threads):
    """CPU a client's operation, in pairs A B B A. The shorter run is taken off the longer one, so
    that starting the process and compiling count for neither."""
    pairs = []
    server = Server(o.muniment, o.data)
    try:
        run("muniment", "load", workload, 4, server.port)
        for pair in range(o.pairs):
            got = {}
            for side in SIDES if pair % 2 == 0 else SIDES[::-1]:
                short_wall, short = run(side, "run", workload, threads, server.port,
                                        operationcount=o.cpu_short)
                wall, long = run(side, "run", workload, threads, server.port,
                                 operationcount=o.cpu_long)
                more = o.cpu_long - o.cpu_short
                got[side] = {
                    "whole_us": long / o.cpu_long * 1e6,
                    "us": (long - short) / more * 1e6,
                    "rate": more / (wall - short_wall),
                    "seconds": wall,
                }
            got["ratio"] = got["muniment"]["us"] / got["stock"]["us"]
            got["whole_ratio"] = got["muniment"]["whole_us"] / got["stock"]["whole_us"]
            pairs.append(got)
            say(f"  workload {workload}, {threads} threads, pair {pair + 1}: " + ", ".join(
                f"{s} {got[s]['us']:.1f} µs/op (with start {got[s]['whole_us']:.1f}), "
                f"{got[s]['rate']:.0f}/s" for s in SIDES) + f"; ratio {got['ratio']:.3f}")
    finally:
        server.close()
    ratios = [p["ratio"] for p in pairs]
    whole = [p["whole_ratio"] for p in pairs]
    out = {
        "workload": workload,
        "threads": threads,
        "operations": [o.cpu_short, o.cpu_long],
        "pairs": pairs,
        "stock_us": samples.median([p["stock"]["us"] for p in pairs]),
        "muniment_us": samples.median([p["muniment"]["us"] for p in pairs]),
        "ratio": [samples.median(ratios), min(ratios), max(ratios)],
        "whole_ratio": [samples.median(whole), min(whole), max(whole)],
    }
    say(f"  workload {workload}, {threads} threads: stock {out['stock_us']:.1f} µs/op, muniment "
        f"{out['muniment_us']:.1f}; ratio {out['ratio'][0]:.3f} ({out['ratio'][1]:.3f} to "
        f"{out['ratio'][2]:.3f}); with start {out['whole_ratio'][0]:.3f}")
    return out


def host():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
                  if line.startswith("model name")), "unknown")
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    return {
        "cores": os.cpu_count(),
        "cpu": model,
        "kernel": platform.release(),
        "java": java.splitlines()[0] if java else "unknown",
        "load_average_at_start": os.getloadavg()[0],
    }


def commit(checkout):
    r = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"],
                       capture_output=True, text=True)
    return r.stdout.strip() if r.returncode == 0 else "unknown"


def numbers(text):
    return [int(n) for n in text.split(",")]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--ycsb", type=pathlib.Path, required=True, help="a checkout of YCSB")
    p.add_argument("--muniment", required=True, help="the release binary")
    p.add_argument("--data", type=pathlib.Path, default=pathlib.Path("/dev/shm"),
                   help="parent of the servers' directories")
    p.add_argument("--json", type=pathlib.Path, help="write everything measured to this file")
    p.add_argument("--records", type=int, default=20000)
    p.add_argument("--operations", type=int, default=200000, help="requests compared")
    p.add_argument("--workloads", default="a,b,f", help="whose requests are compared")
    p.add_argument("--threads", type=numbers, default=[4, 16])
    p.add_argument("--cpu", default="a:16,b:4", help="workload:threads whose CPU is compared")
    p.add_argument("--cpu-short", type=int, default=100000)
    p.add_argument("--cpu-long", type=int, default=1000000)
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--commit", help="YCSB's commit, where the checkout does not know it")
    o = p.parse_args()
    # Ends as Ctrl-C does: servers are stopped, and what there is gets written.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    o.ycsb = o.ycsb.resolve()
    o.muniment = str(pathlib.Path(o.muniment).resolve())
    o.work = pathlib.Path(tempfile.mkdtemp(prefix="stock-ycsb-"))
    result = {"host": host(), "ycsb_core": CORE, "driver": DRIVER,
              "binding_commit": o.commit or commit(o.ycsb),
              "records": o.records}
    try:
        run = Runner(o, build(o.ycsb, o.work))
        say("Documents after load")
        result["documents"] = same_documents(o, run)
        say("Requests")
        result["requests"] = [
            same_requests(o, run, w, t) for w in o.workloads.split(",") if w for t in o.threads
        ]
        result["control"] = control(o, run)
        say("CPU of the client")
        result["cpu"] = []
        for one in o.cpu.split(","):
            if one:
                w, t = one.split(":")
                result["cpu"].append(cpu(o, run, w, int(t)))
    finally:
        shutil.rmtree(o.work, ignore_errors=True)
        if o.json:
            o.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
