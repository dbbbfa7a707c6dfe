import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import com.mongodb.ClientSessionOptions;
import com.mongodb.MongoException;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClients;
import com.mongodb.client.model.changestream.FullDocument;
import com.mongodb.client.model.changestream.FullDocumentBeforeChange;
import com.mongodb.client.model.changestream.OperationType;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.bson.BsonValue;
import org.bson.Document;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;
import org.springframework.dao.DataAccessException;
import org.springframework.dao.DuplicateKeyException;
import org.springframework.data.mongodb.MongoTransactionManager;
import org.springframework.data.mongodb.ReactiveMongoTransactionManager;
import org.springframework.data.mongodb.core.ChangeStreamEvent;
import org.springframework.data.mongodb.core.ChangeStreamOptions;
import org.springframework.data.mongodb.core.CollectionOptions;
import org.springframework.data.mongodb.core.CollectionOptions.CollectionChangeStreamOptions;
import org.springframework.data.mongodb.core.MongoTemplate;
import org.springframework.data.mongodb.core.ReactiveMongoTemplate;
import org.springframework.data.mongodb.core.SimpleMongoClientDatabaseFactory;
import org.springframework.data.mongodb.core.SimpleReactiveMongoDatabaseFactory;
import org.springframework.data.mongodb.core.aggregation.Aggregation;
import org.springframework.data.mongodb.core.messaging.ChangeStreamRequest;
import org.springframework.data.mongodb.core.messaging.DefaultMessageListenerContainer;
import org.springframework.data.mongodb.core.messaging.MessageListener;
import org.springframework.data.mongodb.core.messaging.Subscription;
import org.springframework.data.mongodb.core.query.Criteria;
import org.springframework.data.mongodb.core.query.Query;
import org.springframework.data.mongodb.core.query.Update;
import org.springframework.transaction.interceptor.DefaultTransactionAttribute;
import org.springframework.transaction.reactive.TransactionalOperator;
import org.springframework.transaction.support.TransactionTemplate;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Spring Data's templates, reactive and blocking, against the server that MUNIMENT_URI names. */
public class SpringDataTest {
  private static final String DB = "spring";
  private static final Query ALL = new Query();

  /** What the tests store. */
  public static class Person {
    public String id;
    public String name;
    public int age;

    public Person() {}

    Person(String name, int age) {
      this.name = name;
      this.age = age;
    }
  }

  private com.mongodb.client.MongoClient client;
  private com.mongodb.reactivestreams.client.MongoClient reactiveClient;
  private SimpleMongoClientDatabaseFactory factory;
  private SimpleReactiveMongoDatabaseFactory reactiveFactory;
  private MongoTemplate template;
  private ReactiveMongoTemplate reactive;

  @Before
  public void connect() {
    String uri = System.getenv("MUNIMENT_URI");
    client = MongoClients.create(uri);
    reactiveClient = com.mongodb.reactivestreams.client.MongoClients.create(uri);
    factory = new SimpleMongoClientDatabaseFactory(client, DB);
    reactiveFactory = new SimpleReactiveMongoDatabaseFactory(reactiveClient, DB);
    template = new MongoTemplate(factory);
    reactive = new ReactiveMongoTemplate(reactiveFactory);
    client.getDatabase(DB).drop();
    template.createCollection(Person.class);
  }

  @After
  public void close() {
    client.getDatabase(DB).drop();
    reactiveClient.close();
    client.close();
  }

  private static Query named(String name) {
    return Query.query(Criteria.where("name").is(name));
  }

  private long people() {
    return new MongoTemplate(factory).count(ALL, Person.class);
  }

  private static <T> T next(BlockingQueue<T> queue) throws InterruptedException {
    T event = queue.poll(10, TimeUnit.SECONDS);
    assertTrue("an event within 10 s", event != null);
    return event;
  }

  /** Subscribes, and runs `marker` until an event of it arrives: from there on none is missed. */
  private <T> Disposable subscribed(Flux<T> events, BlockingQueue<T> queue, Runnable marker)
      throws InterruptedException {
    Disposable subscription = events.subscribe(queue::add);
    for (int i = 0; queue.isEmpty() && i < 1000; i++) {
      marker.run();
      Thread.sleep(10);
    }
    return subscription;
  }

  @Test
  public void reactiveChangeStream() throws InterruptedException {
    BlockingQueue<ChangeStreamEvent<Person>> queue = new LinkedBlockingQueue<>();
    Disposable subscription =
        subscribed(
            reactive.changeStream(Person.class).watchCollection(Person.class).listen(),
            queue,
            () -> reactive.insert(new Person("marker", 0)).block());
    Person ann = reactive.insert(new Person("ann", 1)).block();
    reactive
        .update(Person.class)
        .matching(named("ann"))
        .apply(Update.update("age", 2))
        .first()
        .block();
    ann.age = 3;
    reactive.save(ann).block();
    reactive.remove(ann).block();
    List<ChangeStreamEvent<Person>> events = new ArrayList<>();
    while (events.size() < 4) {
      ChangeStreamEvent<Person> event = next(queue);
      Person body = event.getBody();
      if (body == null || !body.name.equals("marker")) events.add(event);
    }
    subscription.dispose();
    List<OperationType> kinds =
        List.of(
            OperationType.INSERT,
            OperationType.UPDATE,
            OperationType.REPLACE,
            OperationType.DELETE);
    assertEquals(kinds, events.stream().map(ChangeStreamEvent::getOperationType).toList());
    assertEquals(3, events.get(2).getBody().age);

    BsonValue token = events.get(1).getResumeToken();
    assertEquals(
        kinds.subList(2, 4),
        reactive
            .changeStream(Person.class)
            .watchCollection(Person.class)
            .resumeAfter(token)
            .listen()
            .take(2)
            .map(ChangeStreamEvent::getOperationType)
            .collectList()
            .block(Duration.ofSeconds(10)));
  }

  @Test
  public void imagesBeforeAndAfter() throws InterruptedException {
    reactive
        .createCollection(
            "images",
            CollectionOptions.empty()
                .changeStream(CollectionChangeStreamOptions.preAndPostImages(true)))
        .block();
    ChangeStreamOptions options =
        ChangeStreamOptions.builder()
            .filter(
                Aggregation.newAggregation(
                    Aggregation.match(Criteria.where("operationType").is("update"))))
            .fullDocumentBeforeChangeLookup(FullDocumentBeforeChange.REQUIRED)
            .fullDocumentLookup(FullDocument.REQUIRED)
            .build();
    reactive.insert(new Document("_id", 1).append("x", 0), "images").block();
    BlockingQueue<ChangeStreamEvent<Document>> queue = new LinkedBlockingQueue<>();
    Disposable subscription =
        subscribed(
            reactive.changeStream("images", options, Document.class),
            queue,
            () ->
                reactive
                    .updateFirst(
                        Query.query(Criteria.where("_id").is(1)),
                        new Update().inc("x", 1),
                        "images")
                    .block());
    ChangeStreamEvent<Document> event = next(queue);
    int before = event.getBodyBeforeChange().getInteger("x");
    assertEquals(before + 1, (int) event.getBody().getInteger("x"));
    subscription.dispose();
  }

  @Test
  public void tailable() throws InterruptedException {
    reactive.createCollection("log", CollectionOptions.empty().capped().size(100_000)).block();
    reactive.insert(new Document("_id", 0), "log").block();
    BlockingQueue<Document> queue = new LinkedBlockingQueue<>();
    Disposable subscription = reactive.tail(ALL, Document.class, "log").subscribe(queue::add);
    for (int i = 1; i < 20; i++) reactive.insert(new Document("_id", i), "log").block();
    for (int i = 0; i < 20; i++) assertEquals(i, (int) next(queue).getInteger("_id"));
    subscription.dispose();
  }

  @Test
  public void listenerContainer() throws InterruptedException {
    DefaultMessageListenerContainer container = new DefaultMessageListenerContainer(template);
    container.start();
    BlockingQueue<Person> queue = new LinkedBlockingQueue<>();
    MessageListener<
            com.mongodb.client.model.changestream.ChangeStreamDocument<Document>, Person>
        listener = message -> queue.add(message.getBody());
    Subscription subscription =
        container.register(
            ChangeStreamRequest.builder(listener).collection("person").build(), Person.class);
    assertTrue(subscription.await(Duration.ofSeconds(10)));
    template.insert(new Person("bob", 5));
    assertEquals("bob", next(queue).name);
    container.stop();
  }

  @Test
  public void reactiveTransactions() {
    TransactionalOperator operator =
        TransactionalOperator.create(new ReactiveMongoTransactionManager(reactiveFactory));
    Long seen =
        operator
            .execute(
                status ->
                    reactive
                        .insert(new Person("a", 1))
                        .then(reactive.insert(new Document("_id", 1), "made"))
                        .then(reactive.count(ALL, Person.class)))
            .blockLast();
    assertEquals(1L, (long) seen);
    assertEquals(1, people());
    assertEquals(1, template.count(ALL, "made"));
    assertThrows(
        IllegalStateException.class,
        () ->
            operator
                .execute(
                    status ->
                        reactive
                            .insert(new Person("b", 1))
                            .then(Mono.error(new IllegalStateException())))
                .blockLast());
    Function<org.springframework.transaction.ReactiveTransaction, Mono<Person>> given =
        status -> {
          status.setRollbackOnly();
          return reactive.insert(new Person("c", 1));
        };
    operator.execute(given::apply).blockLast();
    assertEquals(1, people());
  }

  @Test
  public void transactions() {
    MongoTransactionManager manager = new MongoTransactionManager(factory);
    DefaultTransactionAttribute options = new DefaultTransactionAttribute();
    options.setLabels(
        List.of(
            "mongo:readConcern=snapshot",
            "mongo:writeConcern=majority",
            "mongo:maxCommitTime=PT5S"));
    TransactionTemplate transaction = new TransactionTemplate(manager, options);
    transaction.executeWithoutResult(
        status -> {
          template.insert(new Person("a", 1));
          template.updateMulti(ALL, new Update().inc("age", 10), Person.class);
          assertEquals(0, seenByOthers("a"));
        });
    Person a = template.findOne(named("a"), Person.class);
    assertEquals(11, a.age);
    assertThrows(
        IllegalStateException.class,
        () ->
            transaction.executeWithoutResult(
                status -> {
                  template.insert(new Person("b", 1));
                  throw new IllegalStateException();
                }));
    assertThrows(
        DuplicateKeyException.class,
        () -> transaction.executeWithoutResult(status -> template.insert(a)));
    // Spring has no exception of its own for a conflict: who retries asks for the driver's label.
    DataAccessException conflict =
        assertThrows(
            DataAccessException.class,
            () ->
                transaction.executeWithoutResult(
                    status -> {
                      template.findOne(named("a"), Person.class);
                      elsewhere(t -> t.updateFirst(named("a"), Update.update("age", 0), Person.class));
                      template.updateFirst(named("a"), Update.update("age", 1), Person.class);
                    }));
    MongoException cause = (MongoException) conflict.getCause();
    assertEquals(112, cause.getCode());
    assertTrue(cause.hasErrorLabel(MongoException.TRANSIENT_TRANSACTION_ERROR_LABEL));
    assertEquals(1, people());
    assertEquals(0, template.findOne(named("a"), Person.class).age);
  }

  /** Runs on another thread, which is in no transaction. */
  private <T> T elsewhere(Function<MongoTemplate, T> act) {
    return CompletableFuture.supplyAsync(() -> act.apply(new MongoTemplate(factory))).join();
  }

  private long seenByOthers(String name) {
    return elsewhere(t -> t.count(named(name), Person.class));
  }

  @Test
  public void snapshotSession() {
    template.insert(new Person("early", 0));
    ClientSessionOptions options = ClientSessionOptions.builder().snapshot(true).build();
    try (ClientSession session = client.startSession(options)) {
      assertEquals(1, template.withSession(session).find(ALL, Person.class).size());
      template.insert(new Person("late", 0));
      assertEquals(1, template.withSession(session).find(ALL, Person.class).size());
    }
    assertEquals(2, people());
  }
}
