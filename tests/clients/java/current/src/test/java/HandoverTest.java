import static org.junit.Assert.assertEquals;
import static org.junit.Assume.assumeNotNull;

import com.mongodb.MongoNamespace;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Accumulators;
import com.mongodb.client.model.Aggregates;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.Updates;
import com.mongodb.client.model.bulk.ClientNamespacedWriteModel;
import com.mongodb.client.model.bulk.ClientUpdateOneOptions;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.bson.Document;
import org.bson.conversions.Bson;
import org.junit.Test;

/** The workload of handovers.py over the current Java driver with default options: see handovers_load.py. */
public class HandoverTest {
  private static final int WORKERS = 4;
  private static final String DB = "handovers";
  private static final Bson INC = Updates.inc("n", 1);
  private static final UpdateOptions UPSERT = new UpdateOptions().upsert(true);

  private interface Operation {
    void run(int n) throws Exception;
  }

  private static Path marker(String name) {
    return Path.of(System.getenv("MUNIMENT_HANDOVERS"), name);
  }

  private static class Worker extends Thread {
    final int number;
    final List<String> errors = new CopyOnWriteArrayList<>();
    final Map<String, Integer> done = new ConcurrentHashMap<>();
    final Map<String, Operation> operations = new LinkedHashMap<>();
    final MongoClient client = MongoClients.create(System.getenv("MUNIMENT_URI"));
    final MongoDatabase db = client.getDatabase(DB);
    final MongoCollection<Document> load = db.getCollection("load");
    final MongoCollection<Document> counters = db.getCollection("counters");
    final MongoCollection<Document> rows = db.getCollection("rows");
    final MongoCollection<Document> gone = db.getCollection("gone");

    Worker(int number) {
      this.number = number;
      operations.put("insert", n -> load.insertOne(row("insert", n)));
      operations.put("insertMany", this::insertMany);
      operations.put("update", n -> counters.updateOne(byId("update"), INC, UPSERT));
      operations.put(
          "findAndModify",
          n ->
              counters.findOneAndUpdate(
                  byId("findAndModify"), INC, new FindOneAndUpdateOptions().upsert(true)));
      operations.put("delete", this::delete);
      operations.put("find", n -> assertEquals(100, rows.find().into(new ArrayList<>()).size()));
      operations.put("aggregate", this::aggregate);
      operations.put("bulkWrite", this::bulkWrite);
      operations.put("clientBulkWrite", this::clientBulkWrite);
      operations.put("transaction", this::transaction);
    }

    String id(Object operation) {
      return number + " " + operation;
    }

    Bson byId(Object operation) {
      return Filters.eq("_id", id(operation));
    }

    Document row(String operation, Object i) {
      return new Document("worker", number).append("operation", operation).append("i", i);
    }

    void insertMany(int n) {
      List<Document> many = new ArrayList<>();
      for (int i = 0; i < 5; i++) many.add(row("insertMany", List.of(n, i)));
      load.insertMany(many);
    }

    void delete(int n) {
      gone.insertOne(new Document("_id", id(n)));
      assertEquals(1, gone.deleteOne(byId(n)).getDeletedCount());
    }

    void aggregate(int n) {
      Document found = rows.aggregate(List.of(Aggregates.group(null, Accumulators.sum("n", 1)))).first();
      assertEquals(100, (int) found.getInteger("n"));
    }

    void bulkWrite(int n) {
      Document inserted = new Document("_id", id("bulkWrite") + " " + n);
      counters.bulkWrite(
          List.of(new UpdateOneModel<>(byId("bulkWrite"), INC, UPSERT), new InsertOneModel<>(inserted)));
    }

    void clientBulkWrite(int n) {
      MongoNamespace counters = new MongoNamespace(DB, "counters");
      ClientUpdateOneOptions upsert = ClientUpdateOneOptions.clientUpdateOneOptions().upsert(true);
      client.bulkWrite(
          List.of(
              ClientNamespacedWriteModel.updateOne(counters, byId("clientBulkWrite"), INC, upsert),
              ClientNamespacedWriteModel.insertOne(
                  new MongoNamespace(DB, "load"), row("clientBulkWrite", n))));
    }

    void transaction(int n) {
      try (ClientSession session = client.startSession()) {
        session.withTransaction(
            () -> {
              counters.updateOne(session, byId("transaction"), INC, UPSERT);
              return load.insertOne(session, row("transaction", n));
            });
      }
    }

    @Override
    public void run() {
      for (int n = 1; !Files.exists(marker("done")); n++) {
        int turn = n;
        operations.forEach((name, operation) -> runOne(name, operation, turn));
      }
    }

    private void runOne(String name, Operation operation, int n) {
      try {
        operation.run(n);
        done.merge(name, 1, Integer::sum);
        sleep(2);
      } catch (Exception | AssertionError e) {
        StringWriter trace = new StringWriter();
        e.printStackTrace(new PrintWriter(trace));
        errors.add(name + ": " + trace);
      }
    }

    boolean works() {
      return done.size() == operations.size() || !errors.isEmpty();
    }

    /** Everything was done exactly once. */
    void judge() {
      Map.of("insert", 1, "insertMany", 5, "clientBulkWrite", 1, "transaction", 1)
          .forEach(
              (operation, each) -> {
                Bson found = Filters.and(Filters.eq("worker", number), Filters.eq("operation", operation));
                assertEquals(operation, done.get(operation) * each, load.countDocuments(found));
              });
      for (String operation :
          List.of("update", "findAndModify", "bulkWrite", "clientBulkWrite", "transaction")) {
        Document found = counters.find(byId(operation)).first();
        assertEquals(operation, done.get(operation), found.getInteger("n"));
      }
    }
  }

  @Test
  public void nothingIsNoticed() throws Exception {
    assumeNotNull(System.getenv("MUNIMENT_HANDOVERS"));
    List<Worker> workers = new ArrayList<>();
    for (int i = 0; i < WORKERS; i++) workers.add(new Worker(i));
    for (Worker w : workers) w.start();
    for (Worker w : workers) while (!w.works()) Thread.sleep(100);
    Files.createFile(marker("ready"));
    List<String> errors = new ArrayList<>();
    int operations = 0;
    for (Worker w : workers) {
      w.join();
      errors.addAll(w.errors);
      for (int n : w.done.values()) operations += n;
    }
    System.out.println("The Java driver: " + operations + " operations, " + errors.size() + " errors");
    errors.stream().limit(5).forEach(System.out::println);
    assertEquals(List.of(), errors);
    for (Worker w : workers) w.judge();
    for (Worker w : workers) w.client.close();
  }
}
