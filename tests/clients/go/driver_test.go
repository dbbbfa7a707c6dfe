// The Go driver against the server that MUNIMENT_URI names.
package drivertest

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

func connect(t *testing.T) (*mongo.Client, *mongo.Database) {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MUNIMENT_URI")).
		SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	db := client.Database("go_" + t.Name())
	if err := db.Drop(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = db.Drop(context.Background())
		_ = client.Disconnect(context.Background())
	})
	return client, db
}

func TestCRUD(t *testing.T) {
	ctx := context.Background()
	_, db := connect(t)
	c := db.Collection("c")
	many := make([]any, 1000)
	for i := range many {
		many[i] = bson.D{{Key: "_id", Value: i}, {Key: "k", Value: i % 7}}
	}
	if _, err := c.InsertMany(ctx, many); err != nil {
		t.Fatal(err)
	}
	cur, err := c.Find(ctx, bson.D{{Key: "k", Value: 3}}, options.Find().SetSort(bson.D{{Key: "_id", Value: -1}}).SetBatchSize(5))
	if err != nil {
		t.Fatal(err)
	}
	var got []struct {
		ID int `bson:"_id"`
	}
	if err := cur.All(ctx, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 143 || got[0].ID != 997 {
		t.Fatalf("got %d documents, first %+v", len(got), got[0])
	}
	r, err := c.UpdateMany(ctx, bson.D{{Key: "k", Value: 3}}, bson.D{{Key: "$set", Value: bson.D{{Key: "z", Value: 1}}}})
	if err != nil || r.ModifiedCount != 143 {
		t.Fatalf("%+v %v", r, err)
	}
	n, err := c.CountDocuments(ctx, bson.D{{Key: "z", Value: 1}})
	if err != nil || n != 143 {
		t.Fatalf("%d %v", n, err)
	}
	d, err := c.DeleteMany(ctx, bson.D{{Key: "z", Value: bson.D{{Key: "$exists", Value: false}}}})
	if err != nil || d.DeletedCount != 857 {
		t.Fatalf("%+v %v", d, err)
	}
}

func TestDuplicateKey(t *testing.T) {
	ctx := context.Background()
	_, db := connect(t)
	c := db.Collection("c")
	if _, err := c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "u", Value: 1}}, Options: options.Index().SetUnique(true)}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.InsertOne(ctx, bson.D{{Key: "u", Value: 1}}); err != nil {
		t.Fatal(err)
	}
	_, err := c.InsertOne(ctx, bson.D{{Key: "u", Value: 1}})
	if !mongo.IsDuplicateKeyError(err) {
		t.Fatalf("want a duplicate key error, got %v", err)
	}
}

func TestAggregateAndFindAndModify(t *testing.T) {
	ctx := context.Background()
	_, db := connect(t)
	c := db.Collection("c")
	for i := range 10 {
		if _, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: i}, {Key: "v", Value: i}}); err != nil {
			t.Fatal(err)
		}
	}
	cur, err := c.Aggregate(ctx, bson.A{bson.M{"$group": bson.M{"_id": nil, "t": bson.M{"$sum": "$v"}}}})
	if err != nil {
		t.Fatal(err)
	}
	var rows []bson.M
	if err := cur.All(ctx, &rows); err != nil || rows[0]["t"] != int32(45) {
		t.Fatalf("%v %v", rows, err)
	}
	var after bson.M
	err = c.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: 5}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "v", Value: 1}}}},
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&after)
	if err != nil || after["v"] != int32(6) {
		t.Fatalf("%v %v", after, err)
	}
}

func TestWriteConcernAndCompression(t *testing.T) {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MUNIMENT_URI")).
		SetCompressors([]string{"zstd", "snappy", "zlib"}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(ctx) }()
	db := client.Database("go_wc")
	defer func() { _ = db.Drop(ctx) }()
	yes := true
	for _, wc := range []*writeconcern.WriteConcern{
		{W: 1, Journal: &yes}, writeconcern.Majority(),
	} {
		c := db.Collection("c", options.Collection().SetWriteConcern(wc))
		if _, err := c.InsertOne(ctx, bson.D{{Key: "s", Value: "text"}}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = db.Collection("c", options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: 3})).
		InsertOne(ctx, bson.D{})
	var ce mongo.CommandError
	if !errors.As(err, &ce) || ce.Code != 2 {
		t.Fatalf("w:3 on a standalone: %v", err)
	}
}

func TestTransactionAndChangeStream(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client, db := connect(t)
	stream, err := db.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetFullDocument(options.UpdateLookup))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close(ctx) }()
	session, err := client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		for _, name := range []string{"a", "b"} {
			if _, err := db.Collection(name).InsertOne(ctx, bson.D{{Key: "_id", Value: 1}}); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Collection("a").UpdateOne(ctx, bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: 2}}}}); err != nil {
		t.Fatal(err)
	}
	want := []string{"insert a", "insert b", "update a"}
	for i, w := range want {
		if !stream.Next(ctx) {
			t.Fatalf("event %d: %v", i, stream.Err())
		}
		var e struct {
			OperationType string
			Ns            struct{ Coll string }
			FullDocument  bson.M
		}
		if err := stream.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if got := e.OperationType + " " + e.Ns.Coll; got != w || e.FullDocument == nil {
			t.Fatalf("event %d is %+v, not %s", i, e, w)
		}
	}
}

func TestSnapshotSession(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client, db := connect(t)
	c := db.Collection("c")
	many := make([]any, 100)
	for i := range many {
		many[i] = bson.D{{Key: "_id", Value: i}, {Key: "k", Value: i % 2}}
	}
	if _, err := c.InsertMany(ctx, many); err != nil {
		t.Fatal(err)
	}
	session, err := client.StartSession(options.Session().SetSnapshot(true))
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(ctx)
	snapshot := mongo.NewSessionContext(ctx, session)
	cur, err := c.Find(snapshot, bson.D{}, options.Find().SetBatchSize(10))
	if err != nil {
		t.Fatal(err)
	}
	// The cursor is open and the session begun: neither sees what comes now.
	if _, err := c.DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: 20}}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UpdateMany(ctx, bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "k", Value: 7}}}}); err != nil {
		t.Fatal(err)
	}
	var got []bson.M
	if err := cur.All(snapshot, &got); err != nil || len(got) != 100 {
		t.Fatalf("%d documents, %v", len(got), err)
	}
	var kinds []int
	if err := c.Distinct(snapshot, "k", bson.D{}).Decode(&kinds); err != nil || !slices.Equal(kinds, []int{0, 1}) {
		t.Fatalf("%v, %v", kinds, err)
	}
	counted, err := c.CountDocuments(snapshot, bson.D{})
	if err != nil || counted != 100 {
		t.Fatalf("%d, %v", counted, err)
	}
	counted, err = c.CountDocuments(ctx, bson.D{{Key: "k", Value: 7}})
	if err != nil || counted != 20 {
		t.Fatalf("%d, %v", counted, err)
	}
}
