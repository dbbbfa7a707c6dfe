import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.Updates;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.bson.Document;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** Debezium's connector, in its engine, against the replica set that MUNIMENT_URI names. */
public class DebeziumTest {
  private static final String DB = "debezium";
  private static final int FIRST = 500;
  private static final int WRITERS = 4;
  private static final int EACH = 100;

  @Rule public TemporaryFolder folder = new TemporaryFolder();

  /** An engine that runs until it is closed. */
  private static final class Running implements AutoCloseable {
    final BlockingQueue<String> events = new LinkedBlockingQueue<>();
    private final DebeziumEngine<ChangeEvent<String, String>> engine;
    private final ExecutorService thread = Executors.newSingleThreadExecutor();

    Running(Path offsets) {
      Properties p = new Properties();
      p.setProperty("name", "engine");
      p.setProperty("connector.class", "io.debezium.connector.mongodb.MongoDbConnector");
      p.setProperty(
          "offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
      p.setProperty("offset.storage.file.filename", offsets.toString());
      p.setProperty("offset.flush.interval.ms", "0");
      // Without the set's name the connector takes the server for no set, and ends.
      p.setProperty("mongodb.connection.string", System.getenv("MUNIMENT_URI") + "?replicaSet=rs0");
      p.setProperty("topic.prefix", "t");
      p.setProperty("collection.include.list", DB + "\\..*");
      p.setProperty("capture.mode", "change_streams_update_full_with_pre_image");
      p.setProperty("capture.mode.full.update.type", "post_image");
      p.setProperty("tombstones.on.delete", "false");
      engine =
          DebeziumEngine.create(Json.class).using(p).notifying(this::add).build();
      thread.execute(engine);
    }

    /** An event as `collection operation key value-before value-after`. */
    private void add(ChangeEvent<String, String> event) {
      Document payload = Document.parse(event.value()).get("payload", Document.class);
      Document key = Document.parse(event.key()).get("payload", Document.class);
      String[] words = {
        payload.get("source", Document.class).getString("collection"),
        payload.getString("op"),
        key.getString("id"),
        value(payload.getString("before")),
        value(payload.getString("after"))
      };
      events.add(String.join(" ", words));
    }

    private static String value(String document) {
      return document == null ? "-" : String.valueOf(Document.parse(document).get("v"));
    }

    List<String> take(int count) throws InterruptedException {
      List<String> taken = new ArrayList<>();
      while (taken.size() < count) {
        String event = events.poll(30, TimeUnit.SECONDS);
        assertTrue("event " + taken.size() + " of " + count + " within 30 s", event != null);
        taken.add(event);
      }
      return taken;
    }

    @Override
    public void close() throws IOException, InterruptedException {
      engine.close();
      thread.shutdown();
      assertTrue(thread.awaitTermination(30, TimeUnit.SECONDS));
    }
  }

  @Test
  public void snapshotStreamAndRestart() throws Exception {
    Path offsets = folder.getRoot().toPath().resolve("offsets");
    try (MongoClient client = MongoClients.create(System.getenv("MUNIMENT_URI"))) {
      MongoDatabase db = client.getDatabase(DB);
      db.drop();
      for (String name : List.of("a", "b")) {
        Document images = new Document("enabled", true);
        db.runCommand(new Document("create", name).append("changeStreamPreAndPostImages", images));
      }
      MongoCollection<Document> a = db.getCollection("a");
      MongoCollection<Document> b = db.getCollection("b");
      List<Document> first = new ArrayList<>();
      for (int i = 0; i < FIRST; i++) first.add(new Document("_id", i).append("v", 0));
      a.insertMany(first);

      try (Running engine = new Running(offsets)) {
        List<String> snapshot = engine.take(FIRST);
        for (int i = 0; i < FIRST; i++) assertTrue(snapshot.contains("a r " + i + " - 0"));

        a.insertOne(new Document("_id", -1).append("v", 1));
        a.updateOne(Filters.eq("_id", -1), Updates.inc("v", 1));
        a.replaceOne(Filters.eq("_id", -1), new Document("v", 9));
        a.deleteOne(Filters.eq("_id", -1));
        try (ClientSession session = client.startSession()) {
          session.withTransaction(
              () -> {
                a.insertOne(session, new Document("_id", -2).append("v", 1));
                b.insertOne(session, new Document("_id", -2).append("v", 2));
                return a.updateOne(session, Filters.eq("_id", -2), Updates.inc("v", 2));
              });
        }
        assertEquals(
            List.of(
                "a c -1 - 1",
                "a u -1 1 2",
                "a u -1 2 9",
                "a d -1 9 -",
                "a c -2 - 1",
                "b c -2 - 2",
                "a u -2 1 3"),
            engine.take(7));
      }

      // While it is away and while it comes back, writers go on: nothing is lost or told twice.
      ExecutorService writers = Executors.newFixedThreadPool(WRITERS);
      for (int w = 0; w < WRITERS; w++) {
        int from = FIRST + w * EACH;
        writers.execute(
            () -> {
              for (int i = from; i < from + EACH; i++) {
                b.insertOne(new Document("_id", i).append("v", i));
                a.updateOne(Filters.eq("_id", i - from), Updates.inc("v", 1));
              }
            });
      }
      try (Running engine = new Running(offsets)) {
        List<String> events = engine.take(2 * WRITERS * EACH);
        writers.shutdown();
        assertTrue(writers.awaitTermination(30, TimeUnit.SECONDS));
        for (int i = FIRST; i < FIRST + WRITERS * EACH; i++) {
          assertTrue(events.remove("b c " + i + " - " + i));
        }
        // What is left are the updates: of each document in their order.
        for (int i = 0; i < EACH; i++) {
          for (int w = 0; w < WRITERS; w++) {
            String update = "a u " + i + " " + w + " " + (w + 1);
            int at = events.indexOf(update);
            assertTrue(update, at >= 0);
            if (w > 0) {
              int before = events.indexOf("a u " + i + " " + (w - 1) + " " + w);
              assertTrue("order of " + update, before < at);
            }
          }
        }
        assertEquals(null, engine.events.poll(500, TimeUnit.MILLISECONDS));
      }
      db.drop();
    }
  }
}
