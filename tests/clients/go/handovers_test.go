package drivertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const handoverDB = "handovers"

var inc = bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}

// handoverWorker goes through all operations in turns: see handovers_load.py.
type handoverWorker struct {
	number int
	client *mongo.Client
	db     *mongo.Database
	mu     sync.Mutex
	done   map[string]int64
	errors []string
}

func (w *handoverWorker) coll(name string) *mongo.Collection {
	return w.db.Collection(name)
}

func (w *handoverWorker) id(operation any) string {
	return fmt.Sprint(w.number, " ", operation)
}

func (w *handoverWorker) row(operation string, i any) bson.D {
	return bson.D{{Key: "worker", Value: w.number}, {Key: "operation", Value: operation}, {Key: "i", Value: i}}
}

func byID(id string) bson.D {
	return bson.D{{Key: "_id", Value: id}}
}

func wanted(what string, got, want int64) error {
	if got != want {
		return fmt.Errorf("%s: %d in place of %d", what, got, want)
	}
	return nil
}

type handoverOperation struct {
	name string
	run  func(w *handoverWorker, ctx context.Context, n int64) error
}

var handoverOperations = []handoverOperation{
	{"insert", func(w *handoverWorker, ctx context.Context, n int64) error {
		_, err := w.coll("load").InsertOne(ctx, w.row("insert", n))
		return err
	}},
	{"insertMany", func(w *handoverWorker, ctx context.Context, n int64) error {
		var rows []any
		for i := range 5 {
			rows = append(rows, w.row("insertMany", bson.A{n, i}))
		}
		_, err := w.coll("load").InsertMany(ctx, rows)
		return err
	}},
	{"update", func(w *handoverWorker, ctx context.Context, n int64) error {
		_, err := w.coll("counters").UpdateOne(ctx, byID(w.id("update")), inc, options.UpdateOne().SetUpsert(true))
		return err
	}},
	{"findAndModify", func(w *handoverWorker, ctx context.Context, n int64) error {
		after := options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)
		return w.coll("counters").FindOneAndUpdate(ctx, byID(w.id("findAndModify")), inc, after).Err()
	}},
	{"delete", func(w *handoverWorker, ctx context.Context, n int64) error {
		if _, err := w.coll("gone").InsertOne(ctx, byID(w.id(n))); err != nil {
			return err
		}
		gone, err := w.coll("gone").DeleteOne(ctx, byID(w.id(n)))
		if err != nil {
			return err
		}
		return wanted("deleted", gone.DeletedCount, 1)
	}},
	{"find", func(w *handoverWorker, ctx context.Context, n int64) error {
		cursor, err := w.coll("rows").Find(ctx, bson.D{})
		if err != nil {
			return err
		}
		var rows []bson.D
		if err := cursor.All(ctx, &rows); err != nil {
			return err
		}
		return wanted("rows", int64(len(rows)), 100)
	}},
	{"aggregate", func(w *handoverWorker, ctx context.Context, n int64) error {
		sum := bson.D{{Key: "_id", Value: nil}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}
		cursor, err := w.coll("rows").Aggregate(ctx, mongo.Pipeline{{{Key: "$group", Value: sum}}})
		if err != nil {
			return err
		}
		var found []struct{ N int64 }
		if err := cursor.All(ctx, &found); err != nil {
			return err
		}
		return wanted("rows", found[0].N, 100)
	}},
	{"bulkWrite", func(w *handoverWorker, ctx context.Context, n int64) error {
		id := w.id("bulkWrite")
		_, err := w.coll("counters").BulkWrite(ctx, []mongo.WriteModel{
			mongo.NewUpdateOneModel().SetFilter(byID(id)).SetUpdate(inc).SetUpsert(true),
			mongo.NewInsertOneModel().SetDocument(byID(fmt.Sprint(id, " ", n))),
		})
		return err
	}},
	{"clientBulkWrite", func(w *handoverWorker, ctx context.Context, n int64) error {
		update := mongo.NewClientUpdateOneModel().SetFilter(byID(w.id("clientBulkWrite"))).SetUpdate(inc).SetUpsert(true)
		insert := mongo.NewClientInsertOneModel().SetDocument(w.row("clientBulkWrite", n))
		_, err := w.client.BulkWrite(ctx, []mongo.ClientBulkWrite{
			{Database: handoverDB, Collection: "counters", Model: update},
			{Database: handoverDB, Collection: "load", Model: insert},
		})
		return err
	}},
	{"transaction", func(w *handoverWorker, ctx context.Context, n int64) error {
		session, err := w.client.StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			upsert := options.UpdateOne().SetUpsert(true)
			if _, err := w.coll("counters").UpdateOne(ctx, byID(w.id("transaction")), inc, upsert); err != nil {
				return nil, err
			}
			return w.coll("load").InsertOne(ctx, w.row("transaction", n))
		})
		return err
	}},
}

func handoverMarker(name string) string {
	return filepath.Join(os.Getenv("MUNIMENT_HANDOVERS"), name)
}

func (w *handoverWorker) run(ctx context.Context) {
	for n := int64(1); ; n++ {
		if _, err := os.Stat(handoverMarker("done")); err == nil {
			return
		}
		for _, o := range handoverOperations {
			err := o.run(w, ctx, n)
			w.mu.Lock()
			if err == nil {
				w.done[o.name]++
			} else {
				w.errors = append(w.errors, fmt.Sprintf("%s: %+v", o.name, err))
			}
			w.mu.Unlock()
			time.Sleep(2 * time.Millisecond)
		}
	}
}

func (w *handoverWorker) works() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.done) == len(handoverOperations) || len(w.errors) > 0
}

// judge says what was not done exactly once.
func (w *handoverWorker) judge(t *testing.T, ctx context.Context) {
	for operation, each := range map[string]int64{"insert": 1, "insertMany": 5, "clientBulkWrite": 1, "transaction": 1} {
		rows := bson.D{{Key: "worker", Value: w.number}, {Key: "operation", Value: operation}}
		found, err := w.coll("load").CountDocuments(ctx, rows)
		if err != nil || found != w.done[operation]*each {
			t.Errorf("%s: %d rows of %d operations, %v", operation, found, w.done[operation], err)
		}
	}
	for _, operation := range []string{"update", "findAndModify", "bulkWrite", "clientBulkWrite", "transaction"} {
		var found struct{ N int64 }
		err := w.coll("counters").FindOne(ctx, byID(w.id(operation))).Decode(&found)
		if err != nil || found.N != w.done[operation] {
			t.Errorf("%s: %d counted of %d operations, %v", operation, found.N, w.done[operation], err)
		}
	}
}

// The workload of handovers.py over this driver with default options.
func TestHandovers(t *testing.T) {
	if os.Getenv("MUNIMENT_HANDOVERS") == "" {
		t.Skip("it runs beside handovers.py")
	}
	ctx := context.Background()
	var workers []*handoverWorker
	var running sync.WaitGroup
	for i := range 4 {
		client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MUNIMENT_URI")))
		if err != nil {
			t.Fatal(err)
		}
		w := &handoverWorker{number: i, client: client, db: client.Database(handoverDB), done: map[string]int64{}}
		workers = append(workers, w)
		running.Add(1)
		go func() {
			defer running.Done()
			w.run(ctx)
		}()
	}
	for _, w := range workers {
		for !w.works() {
			time.Sleep(100 * time.Millisecond)
		}
	}
	if err := os.WriteFile(handoverMarker("ready"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	running.Wait()
	operations, errors := int64(0), 0
	for _, w := range workers {
		for _, n := range w.done {
			operations += n
		}
		errors += len(w.errors)
		for _, e := range w.errors[:min(len(w.errors), 5)] {
			t.Error(e)
		}
	}
	fmt.Printf("The Go driver: %d operations, %d errors\n", operations, errors)
	for _, w := range workers {
		if errors == 0 {
			w.judge(t, ctx)
		}
		_ = w.client.Disconnect(ctx)
	}
}
