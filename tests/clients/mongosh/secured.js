// Logins over TLS in mongosh, which is already connected with a certificate, and without a login.
function eq(got, want, what) {
  const a = EJSON.stringify(got), b = EJSON.stringify(want);
  if (a !== b) throw new Error(`${what}: got ${a}, want ${b}`);
}
function code(body) {
  try { body(); } catch (e) { return e.code; }
  return 0;
}
const subject = 'CN=client,OU=development,O=Muniment';
const t = db.getSiblingDB('secured');
const who = () => db.adminCommand({ connectionStatus: 1 }).authInfo.authenticatedUsers.map((u) => u.user);
eq(code(() => t.c.findOne()), 13, 'without a login');
eq(code(() => t.auth('SCRAM-SHA-256', 'wrong')), 18, 'a wrong password');
const external = db.getSiblingDB('$external');
eq(external.auth({ mechanism: 'MONGODB-X509' }).ok, 1, 'X.509');
eq(who(), [subject], 'the owner of the certificate');
eq(t.shell.insertOne({ _id: 1 }).insertedId, 1, 'insertOne');
external.logout();
for (const user of ['SCRAM-SHA-1', 'SCRAM-SHA-256']) {
  eq(t.auth({ user, pwd: 'pass,=wörd', mechanism: user }).ok, 1, user);
  eq(who(), [user], user);
  eq(t.shell.findOne(), { _id: 1 }, 'findOne');
  t.logout();
}
eq(t.auth('SCRAM-SHA-256', 'pass,=wörd').ok, 1, 'the mechanism that the server names');
eq(t.shell.drop(), true, 'drop');
eq(code(() => db.getSiblingDB('other').c.insertOne({})), 13, 'another database');
print('mongosh secured passed');
