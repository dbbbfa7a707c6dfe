// Logins over TLS with the Node driver. MUNIMENT_PORT and MUNIMENT_CERTS say where.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MongoClient } from 'mongodb';

const certs = process.env.MUNIMENT_CERTS;
const trust = { tls: true, tlsCAFile: `${certs}/ca.pem` };
const scram = (mechanism, password = 'pass,=wörd') => ({
  ...trust, auth: { username: mechanism, password }, authSource: 'secured', authMechanism: mechanism,
});
const x509 = { ...trust, tlsCertificateKeyFile: `${certs}/client.pem`, authMechanism: 'MONGODB-X509' };

// How long a client looks for a server that refuses its connections. Others have the driver's own 30 s: on a busy machine
// a first login may take some seconds.
const refused = { serverSelectionTimeoutMS: 3000 };

async function using(options, body) {
  const uri = `mongodb://localhost:${process.env.MUNIMENT_PORT}/`;
  const client = new MongoClient(uri, options);
  try {
    return await body(client);
  } finally {
    await client.close();
  }
}

for (const options of [scram('SCRAM-SHA-1'), scram('SCRAM-SHA-256'), x509]) {
  test(`${options.authMechanism} logs in`, () => using(options, async (client) => {
    const c = client.db('secured').collection(`node_${options.authMechanism}`);
    await c.drop();
    const stream = c.watch();
    const seen = stream.next();
    await new Promise((done) => { setTimeout(done, 100); });
    await client.withSession((session) => session.withTransaction(async () => {
      await c.insertMany(Array.from({ length: 500 }, (_, i) => ({ _id: i, text: 'x'.repeat(1000) })), { session });
    }));
    assert.equal((await seen).operationType, 'insert');
    await stream.close();
    assert.equal((await c.find({}, { batchSize: 50 }).toArray()).length, 500);
    assert.equal((await c.updateMany({ _id: { $lt: 9 } }, { $set: { a: 1 } })).modifiedCount, 9);
    await assert.rejects(client.db('other').collection('c').insertOne({}), { code: 13 });
    await c.drop();
  }));
}

test('a wrong password, no login and no TLS are refused', async () => {
  const find = (client) => client.db('secured').collection('c').findOne({});
  await assert.rejects(using(scram('SCRAM-SHA-256', 'wrong'), find), { code: 18 });
  await assert.rejects(using(trust, find), { code: 13 });
  const { tlsCertificateKeyFile, ...without } = x509;
  await assert.rejects(using(without, find), { code: 18 });
  await assert.rejects(using({ tls: true, ...refused }, find), { name: 'MongoServerSelectionError' });
  await assert.rejects(using(refused, find), { name: 'MongoServerSelectionError' });
});
