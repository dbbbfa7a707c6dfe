"""mlaunch (mtools) starts, stops and restarts the server through its mongod name.

Usage: mlaunch.py PATH_OF_MLAUNCH DIRECTORY_WITH_MONGOD SCRATCH_DIRECTORY PORT
"""

import subprocess
import sys
import time

import pymongo


def main(mlaunch, binaries, scratch, port):
    def run(*args):
        r = subprocess.run([mlaunch, *args, "--dir", scratch], capture_output=True, text=True, timeout=60)
        print(r.stdout, r.stderr, sep="")
        assert r.returncode == 0, f"mlaunch {args} exited {r.returncode}"
        return r.stdout

    def client():
        return pymongo.MongoClient(f"mongodb://127.0.0.1:{port}", serverSelectionTimeoutMS=5000)

    run("init", "--single", "--port", port, "--binarypath", binaries)
    try:
        with client() as c:
            c.mlaunch.c.insert_one({"_id": 1}, )
        assert "running" in run("list")
        run("stop")
        try:
            with pymongo.MongoClient(f"mongodb://127.0.0.1:{port}", serverSelectionTimeoutMS=300) as c:
                c.admin.command("ping")
            raise AssertionError("the server answers after mlaunch stop")
        except pymongo.errors.ServerSelectionTimeoutError:
            pass
        run("start", "--binarypath", binaries)
        with client() as c:
            assert c.mlaunch.c.find_one() == {"_id": 1}
        run("restart")
        with client() as c:
            assert c.mlaunch.c.count_documents({}) == 1
    finally:
        subprocess.run([mlaunch, "kill", "--dir", scratch], timeout=60, check=False)
        time.sleep(0.2)
    print("mlaunch: 1 passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
