import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assume.assumeNotNull;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoCredential;
import com.mongodb.MongoSecurityException;
import com.mongodb.MongoTimeoutException;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import java.io.ByteArrayInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.bson.Document;
import org.junit.Before;
import org.junit.Test;

/** Logins over TLS. MUNIMENT_PORT and MUNIMENT_CERTS say where. */
public class SecuredTest {
  private static final char[] NONE = new char[0];
  private static final char[] PASSWORD = "pass,=wörd".toCharArray();
  private static final String SUBJECT = "CN=client,OU=development,O=Muniment";

  @Before
  public void onlyWithTls() {
    assumeNotNull(System.getenv("MUNIMENT_CERTS"));
  }

  /** The bytes of the first block of this kind in a PEM file. */
  private static byte[] pem(String file, String kind) throws Exception {
    String text = Files.readString(Path.of(System.getenv("MUNIMENT_CERTS"), file));
    String begin = "-----BEGIN " + kind + "-----";
    int at = text.indexOf(begin) + begin.length();
    return Base64.getMimeDecoder().decode(text.substring(at, text.indexOf("-----END", at)));
  }

  private static Certificate certificate(String file) throws Exception {
    return CertificateFactory.getInstance("X.509")
        .generateCertificate(new ByteArrayInputStream(pem(file, "CERTIFICATE")));
  }

  /** A context that trusts the CA, and shows the client's certificate if it is to. */
  private static SSLContext context(boolean shows) throws Exception {
    KeyStore trusted = KeyStore.getInstance("PKCS12");
    trusted.load(null, NONE);
    trusted.setCertificateEntry("ca", certificate("ca.pem"));
    TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(trusted);
    KeyStore own = KeyStore.getInstance("PKCS12");
    own.load(null, NONE);
    if (shows) {
      PKCS8EncodedKeySpec spec = new PKCS8EncodedKeySpec(pem("client.pem", "PRIVATE KEY"));
      Certificate[] chain = {certificate("client.pem")};
      own.setKeyEntry("own", KeyFactory.getInstance("EC").generatePrivate(spec), NONE, chain);
    }
    KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
    keys.init(own, NONE);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
    return context;
  }

  /** A client; without TLS if there is no context, without a login if there is no credential. */
  private static MongoClient connect(SSLContext context, MongoCredential credential) {
    // On a busy machine the first login of a JVM may take some seconds.
    return connect(context, credential, 30);
  }

  private static MongoClient connect(SSLContext context, MongoCredential credential, int patience) {
    MongoClientSettings.Builder settings =
        MongoClientSettings.builder()
            .applyConnectionString(
                new ConnectionString("mongodb://localhost:" + System.getenv("MUNIMENT_PORT")))
            .applyToClusterSettings(b -> b.serverSelectionTimeout(patience, TimeUnit.SECONDS));
    if (context != null) settings.applyToSslSettings(b -> b.enabled(true).context(context));
    if (credential != null) settings.credential(credential);
    return MongoClients.create(settings.build());
  }

  private static void works(SSLContext context, MongoCredential credential, String user) {
    try (MongoClient client = connect(context, credential)) {
      Document info =
          client
              .getDatabase("admin")
              .runCommand(new Document("connectionStatus", 1))
              .get("authInfo", Document.class);
      List<Document> users = info.getList("authenticatedUsers", Document.class);
      assertEquals(user, users.get(0).getString("user"));
      MongoCollection<Document> c =
          client.getDatabase("secured").getCollection("java_" + credential.getAuthenticationMechanism());
      c.drop();
      try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> stream = c.watch().cursor();
          ClientSession session = client.startSession()) {
        session.withTransaction(
            () -> c.insertOne(session, new Document("_id", 1).append("text", "x".repeat(1 << 20))));
        assertEquals(1, stream.next().getDocumentKey().getInt32("_id").getValue());
      }
      assertEquals(1, c.countDocuments());
      MongoCollection<Document> other = client.getDatabase("other").getCollection("c");
      MongoCommandException e =
          assertThrows(MongoCommandException.class, () -> other.insertOne(new Document()));
      assertEquals(13, e.getCode());
      c.drop();
    }
  }

  @Test
  public void logins() throws Exception {
    works(
        context(false),
        MongoCredential.createScramSha1Credential("SCRAM-SHA-1", "secured", PASSWORD),
        "SCRAM-SHA-1");
    works(
        context(false),
        MongoCredential.createScramSha256Credential("SCRAM-SHA-256", "secured", PASSWORD),
        "SCRAM-SHA-256");
    works(context(true), MongoCredential.createMongoX509Credential(), SUBJECT);
  }

  private static void find(MongoClient client) {
    try (client) {
      client.getDatabase("secured").getCollection("c").find().first();
    }
  }

  @Test
  public void refusals() throws Exception {
    MongoCredential wrong =
        MongoCredential.createScramSha256Credential("SCRAM-SHA-256", "secured", "wrong".toCharArray());
    SSLContext trusting = context(false);
    assertThrows(MongoSecurityException.class, () -> find(connect(trusting, wrong)));
    MongoCredential x509 = MongoCredential.createMongoX509Credential();
    assertThrows(MongoSecurityException.class, () -> find(connect(trusting, x509)));
    MongoCommandException e =
        assertThrows(MongoCommandException.class, () -> find(connect(trusting, null)));
    assertEquals(13, e.getCode());
    assertThrows(MongoTimeoutException.class, () -> find(connect(null, null, 3)));
    SSLContext distrusting = SSLContext.getInstance("TLS");
    distrusting.init(null, new javax.net.ssl.TrustManager[0], null);
    assertThrows(MongoTimeoutException.class, () -> find(connect(distrusting, null, 3)));
  }
}
