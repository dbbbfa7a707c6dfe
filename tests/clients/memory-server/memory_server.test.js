// mongodb-memory-server, by which test suites of Node applications start their own server, with the
// binary under the name mongod (MONGOD): a single server on each engine, and sets of one and of three.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MongoClient } from 'mongodb';
import { MongoMemoryReplSet, MongoMemoryServer } from 'mongodb-memory-server-core';

const binary = { systemBinary: process.env.MONGOD, version: '8.0.16' };

async function withClient(uri, use) {
  const client = await MongoClient.connect(uri, { serverSelectionTimeoutMS: 20000 });
  try {
    await use(client);
  } finally {
    await client.close();
  }
}

for (const storageEngine of [undefined, 'wiredTiger']) {
  test(`a single server, engine ${storageEngine ?? 'by default'}`, async () => {
    const server = await MongoMemoryServer.create({ binary, instance: { storageEngine } });
    try {
      await withClient(server.getUri(), async (client) => {
        await client.db('t').collection('c').insertOne({ _id: 1 });
        assert.equal(await client.db('t').collection('c').countDocuments(), 1);
        const admin = client.db('admin');
        const options = await admin.command({ getCmdLineOpts: 1 });
        const status = await admin.command({ serverStatus: 1 });
        const build = await admin.command({ buildInfo: 1 });
        const name = options.parsed.storage.engine;
        assert.equal(status.storageEngine.name, name);
        assert.ok(build.storageEngines.includes(name));
        assert.equal(options.parsed.security.authorization, 'disabled');
      });
    } finally {
      await server.stop();
    }
  });
}

for (const count of [1, 3]) {
  test(`a set of ${count}`, async () => {
    const set = await MongoMemoryReplSet.create({ binary, replSet: { count } });
    try {
      await withClient(set.getUri(), async (client) => {
        const c = client.db('t').collection('c');
        await client.withSession((session) =>
          session.withTransaction(() => c.insertOne({ _id: 1 }, { session })),
        );
        assert.equal(await c.countDocuments(), 1);
        const config = await client.db('admin').command({ replSetGetConfig: 1 });
        assert.equal(config.config.members.length, count);
      });
    } finally {
      await set.stop();
    }
  });
}
