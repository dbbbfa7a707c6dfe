import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import com.mongodb.DuplicateKeyException;
import com.mongodb.MongoClient;
import com.mongodb.MongoClientURI;
import com.mongodb.MongoWriteException;
import com.mongodb.WriteConcern;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.InsertManyOptions;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.Updates;
import java.util.ArrayList;
import java.util.List;
import org.bson.Document;
import org.bson.types.Binary;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;

/** The Java driver 3.12, which YCSB and LinkBench use, against the server of MUNIMENT_URI. */
public class LegacyDriverTest {
  private MongoClient client;
  private MongoDatabase db;

  @Before
  public void connect() {
    client = new MongoClient(new MongoClientURI(System.getenv("MUNIMENT_URI")));
    db = client.getDatabase("java_legacy");
    db.drop();
  }

  @After
  public void close() {
    db.drop();
    client.close();
  }

  /** The operations of YCSB's MongoDB client: read, scan, update, insert, delete. */
  @Test
  public void ycsbOperations() {
    MongoCollection<Document> c = db.getCollection("usertable").withWriteConcern(WriteConcern.ACKNOWLEDGED);
    List<Document> batch = new ArrayList<>();
    for (int i = 0; i < 100; i++) {
      batch.add(new Document("_id", String.format("user%04d", i)).append("field0", new Binary(new byte[100])));
    }
    c.insertMany(batch, new InsertManyOptions().ordered(false));
    assertEquals(
        100, c.find(Filters.eq("_id", "user0042")).first().get("field0", Binary.class).length());
    int n = 0;
    for (Document d : c.find(Filters.gte("_id", "user0090")).sort(new Document("_id", 1)).limit(5)) n++;
    assertEquals(5, n);
    assertEquals(
        1,
        c.updateOne(Filters.eq("_id", "user0001"), Updates.set("field0", new Binary(new byte[5])))
            .getMatchedCount());
    c.updateOne(Filters.eq("_id", "new"), Updates.set("x", 1), new UpdateOptions().upsert(true));
    assertEquals(1, c.deleteOne(Filters.eq("_id", "new")).getDeletedCount());
    assertEquals(100, c.countDocuments());
  }

  @Test
  public void duplicateKeyAndUnacknowledged() {
    MongoCollection<Document> c = db.getCollection("c");
    c.insertOne(new Document("_id", 1));
    assertThrows(MongoWriteException.class, () -> c.insertOne(new Document("_id", 1)));
    c.withWriteConcern(WriteConcern.UNACKNOWLEDGED).insertOne(new Document("_id", 2));
    c.withWriteConcern(WriteConcern.JOURNALED).insertOne(new Document("_id", 3));
    assertThrows(
        DuplicateKeyException.class,
        () -> client.getDB("java_legacy").getCollection("c").insert(new com.mongodb.BasicDBObject("_id", 1)));
  }

  @Test
  public void serverStatusForLinkBench() {
    Document status = client.getDatabase("admin").runCommand(new Document("serverStatus", 1));
    assertEquals(1.0, status.get("ok", Number.class).doubleValue(), 0);
  }
}
