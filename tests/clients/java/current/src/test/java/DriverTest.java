import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import com.mongodb.ErrorCategory;
import com.mongodb.MongoWriteException;
import com.mongodb.WriteConcern;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Accumulators;
import com.mongodb.client.model.Aggregates;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.Sorts;
import com.mongodb.client.model.Updates;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import com.mongodb.client.model.changestream.FullDocument;
import com.mongodb.client.model.changestream.OperationType;
import java.util.ArrayList;
import java.util.List;
import org.bson.Document;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;

/** The current Java driver against the server that MUNIMENT_URI names. */
public class DriverTest {
  private MongoClient client;
  private MongoDatabase db;
  private MongoCollection<Document> c;

  @Before
  public void connect() {
    client = MongoClients.create(System.getenv("MUNIMENT_URI"));
    db = client.getDatabase("java_current");
    db.drop();
    c = db.getCollection("c");
  }

  @After
  public void close() {
    db.drop();
    client.close();
  }

  @Test
  public void crud() {
    List<Document> docs = new ArrayList<>();
    for (int i = 0; i < 500; i++) docs.add(new Document("_id", i).append("k", i % 5));
    c.insertMany(docs);
    assertEquals(100, c.countDocuments(Filters.eq("k", 2)));
    Document first = c.find(Filters.gt("_id", 10)).sort(Sorts.descending("_id")).batchSize(3).first();
    assertEquals(499, (int) first.getInteger("_id"));
    assertEquals(100, c.updateMany(Filters.eq("k", 2), Updates.inc("k", 10)).getModifiedCount());
    Document after =
        c.findOneAndUpdate(
            Filters.eq("_id", 7),
            Updates.set("x", 1L),
            new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER));
    assertEquals(1L, (long) after.getLong("x"));
    assertEquals(400, c.deleteMany(Filters.lt("k", 10)).getDeletedCount());
  }

  @Test
  public void aggregate() {
    for (int i = 0; i < 10; i++) c.insertOne(new Document("v", i).append("g", i % 2));
    List<Document> rows =
        c.aggregate(
                List.of(
                    Aggregates.group("$g", Accumulators.sum("t", "$v")),
                    Aggregates.sort(Sorts.ascending("_id"))))
            .into(new ArrayList<>());
    assertEquals(20, (int) rows.get(0).getInteger("t"));
    assertEquals(25, (int) rows.get(1).getInteger("t"));
  }

  @Test
  public void duplicateKey() {
    c.createIndex(Indexes.ascending("u"), new IndexOptions().unique(true));
    c.insertOne(new Document("u", 1));
    MongoWriteException e =
        assertThrows(MongoWriteException.class, () -> c.insertOne(new Document("u", 1)));
    assertEquals(ErrorCategory.DUPLICATE_KEY, e.getError().getCategory());
  }

  @Test
  public void writeConcerns() {
    c.withWriteConcern(WriteConcern.JOURNALED).insertOne(new Document("_id", 1));
    c.withWriteConcern(WriteConcern.MAJORITY).insertOne(new Document("_id", 2));
    assertTrue(
        !c.withWriteConcern(WriteConcern.UNACKNOWLEDGED)
            .insertOne(new Document("_id", 3))
            .wasAcknowledged());
  }

  @Test
  public void transactionsAndChangeStreams() {
    try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> stream =
            db.watch().fullDocument(FullDocument.UPDATE_LOOKUP).cursor();
        ClientSession session = client.startSession()) {
      session.withTransaction(
          () -> {
            c.insertOne(session, new Document("_id", 1));
            return c.updateOne(session, Filters.eq("_id", 1), Updates.set("x", 1));
          });
      assertEquals(OperationType.INSERT, stream.next().getOperationType());
      ChangeStreamDocument<Document> update = stream.next();
      assertEquals(OperationType.UPDATE, update.getOperationType());
      assertEquals(1, (int) update.getFullDocument().getInteger("x"));
      c.deleteOne(Filters.eq("_id", 1));
      try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> resumed =
          c.watch().resumeAfter(update.getResumeToken()).cursor()) {
        assertEquals(OperationType.DELETE, resumed.next().getOperationType());
      }
    }
  }
}
