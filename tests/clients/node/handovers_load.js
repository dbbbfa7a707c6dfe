// The workload of handovers.py over the Node driver with default options: see handovers_load.py.
import assert from 'node:assert/strict';
import { existsSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { MongoClient } from 'mongodb';

const WORKERS = 4;
const DB = 'handovers';
const marker = (name) => `${process.env.MUNIMENT_HANDOVERS}/${name}`;
const inc = { $inc: { n: 1 } };
const upsert = { upsert: true };

class Worker {
  constructor(number) {
    this.number = number;
    this.errors = [];
    this.done = {};
    this.client = new MongoClient(process.env.MUNIMENT_URI);
    this.db = this.client.db(DB);
    this.counters = this.db.collection('counters');
    this.load = this.db.collection('load');
    this.rows = this.db.collection('rows');
  }

  id(operation) {
    return `${this.number} ${operation}`;
  }

  row(operation, i) {
    return { worker: this.number, operation, i };
  }

  operations = {
    insert: (n) => this.load.insertOne(this.row('insert', n)),
    insertMany: (n) => this.load.insertMany([0, 1, 2, 3, 4].map((i) => this.row('insertMany', [n, i]))),
    update: () => this.counters.updateOne({ _id: this.id('update') }, inc, upsert),
    findAndModify: () => this.counters.findOneAndUpdate({ _id: this.id('findAndModify') }, inc, upsert),
    delete: async (n) => {
      const gone = this.db.collection('gone');
      await gone.insertOne({ _id: this.id(n) });
      assert.equal((await gone.deleteOne({ _id: this.id(n) })).deletedCount, 1);
    },
    find: async () => assert.equal((await this.rows.find().toArray()).length, 100),
    aggregate: async () => {
      const found = await this.rows.aggregate([{ $group: { _id: null, n: { $sum: 1 } } }]).toArray();
      assert.equal(found[0].n, 100);
    },
    bulkWrite: (n) => {
      const _id = this.id('bulkWrite');
      return this.counters.bulkWrite([
        { updateOne: { filter: { _id }, update: inc, upsert: true } },
        { insertOne: { document: { _id: `${_id} ${n}` } } },
      ]);
    },
    clientBulkWrite: (n) => {
      const filter = { _id: this.id('clientBulkWrite') };
      return this.client.bulkWrite([
        { name: 'updateOne', namespace: `${DB}.counters`, filter, update: inc, upsert: true },
        { name: 'insertOne', namespace: `${DB}.load`, document: this.row('clientBulkWrite', n) },
      ]);
    },
    transaction: (n) =>
      this.client.withSession((session) =>
        session.withTransaction(async () => {
          await this.counters.updateOne({ _id: this.id('transaction') }, inc, { upsert: true, session });
          await this.load.insertOne(this.row('transaction', n), { session });
        }),
      ),
  };

  async run() {
    for (let n = 1; !existsSync(marker('done')); n++) {
      for (const [name, operation] of Object.entries(this.operations)) {
        try {
          await operation(n);
          this.done[name] = (this.done[name] ?? 0) + 1;
        } catch (e) {
          this.errors.push(`${name}: ${e.stack} ${JSON.stringify(e.errorResponse)}`);
        }
        await sleep(2);
      }
    }
  }

  /** What was not done exactly once. */
  async judge() {
    const wrong = [];
    const rows = { insert: 1, insertMany: 5, clientBulkWrite: 1, transaction: 1 };
    for (const [operation, each] of Object.entries(rows)) {
      const found = await this.load.countDocuments({ worker: this.number, operation });
      if (found !== this.done[operation] * each) wrong.push(`${operation}: ${found} rows of ${this.done[operation]}`);
    }
    for (const operation of ['update', 'findAndModify', 'bulkWrite', 'clientBulkWrite', 'transaction']) {
      const { n } = await this.counters.findOne({ _id: this.id(operation) });
      if (n !== this.done[operation]) wrong.push(`${operation}: ${n} counted of ${this.done[operation]}`);
    }
    return wrong;
  }
}

const workers = Array.from({ length: WORKERS }, (_, i) => new Worker(i));
const running = workers.map((w) => w.run());
while (workers.some((w) => Object.keys(w.done).length < 10 && w.errors.length === 0)) await sleep(100);
writeFileSync(marker('ready'), '');
await Promise.all(running);
const errors = workers.flatMap((w) => w.errors);
const wrong = errors.length > 0 ? [] : (await Promise.all(workers.map((w) => w.judge()))).flat();
await Promise.all(workers.map((w) => w.client.close()));
const count = workers.flatMap((w) => Object.values(w.done)).reduce((a, b) => a + b, 0);
const { version } = createRequire(import.meta.url)('mongodb/package.json');
console.log(`The Node driver ${version}: ${count} operations, ${errors.length} errors`);
for (const e of [...errors.slice(0, 5), ...wrong]) console.log(e);
process.exitCode = errors.length + wrong.length > 0 ? 1 : 0;
