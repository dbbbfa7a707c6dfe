// Logins over TLS with the Go driver. MUNIMENT_PORT and MUNIMENT_CERTS say where.
package drivertest

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// secured connects with these options of the connection string, and says whom the server knows.
func secured(t *testing.T, login string, parameters ...string) (*mongo.Database, string, error) {
	t.Helper()
	uri := "mongodb://" + login + "localhost:" + os.Getenv("MUNIMENT_PORT") + "/?" + strings.Join(parameters, "&")
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	var status struct {
		AuthInfo struct {
			AuthenticatedUsers []struct{ User string }
		}
	}
	err = client.Database("admin").RunCommand(context.Background(), bson.D{{Key: "connectionStatus", Value: 1}}).Decode(&status)
	user := ""
	for _, u := range status.AuthInfo.AuthenticatedUsers {
		user += u.User
	}
	return client.Database("secured"), user, err
}

func TestSecured(t *testing.T) {
	certs := os.Getenv("MUNIMENT_CERTS")
	if certs == "" {
		t.Skip("the server of this run has no TLS")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	file := func(option, name string) string { return option + "=" + url.QueryEscape(filepath.Join(certs, name)) }
	tls, ca, pair := "tls=true", file("tlsCAFile", "ca.pem"), file("tlsCertificateKeyFile", "client.pem")
	x509 := []string{tls, ca, pair, "authMechanism=MONGODB-X509", "authSource=%24external"}
	scram := func(mechanism, password string) (string, []string) {
		login := url.UserPassword(mechanism, password).String() + "@"
		return login, []string{tls, ca, "authSource=secured", "authMechanism=" + mechanism}
	}
	for _, mechanism := range []string{"SCRAM-SHA-1", "SCRAM-SHA-256", "MONGODB-X509"} {
		login, parameters := scram(mechanism, "pass,=wörd")
		want := mechanism
		if mechanism == "MONGODB-X509" {
			login, parameters, want = "", x509, "CN=client,OU=development,O=Muniment"
		}
		db, user, err := secured(t, login, parameters...)
		if err != nil || user != want {
			t.Fatalf("%s: %q, %v", mechanism, user, err)
		}
		c := db.Collection("go_" + mechanism)
		stream, err := c.Watch(ctx, mongo.Pipeline{})
		if err != nil {
			t.Fatal(err)
		}
		err = db.Client().UseSession(ctx, func(ctx context.Context) error {
			_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
				return c.InsertOne(ctx, bson.D{{Key: "text", Value: strings.Repeat("x", 1<<20)}})
			})
			return err
		})
		if err != nil || !stream.Next(ctx) {
			t.Fatalf("%s: %v, %v", mechanism, err, stream.Err())
		}
		_ = stream.Close(ctx)
		if n, err := c.CountDocuments(ctx, bson.D{}); err != nil || n != 1 {
			t.Fatalf("%s: %d, %v", mechanism, n, err)
		}
		if err := c.Drop(ctx); err != nil {
			t.Fatal(err)
		}
		_, err = db.Client().Database("other").Collection("c").InsertOne(ctx, bson.D{})
		var refused mongo.CommandError
		if !errors.As(err, &refused) || refused.Code != 13 {
			t.Fatalf("another database: %v", err)
		}
	}
	login, parameters := scram("SCRAM-SHA-256", "wrong")
	if _, _, err := secured(t, login, parameters...); err == nil || !strings.Contains(err.Error(), "Authentication failed") {
		t.Fatalf("a wrong password: %v", err)
	}
	db, user, err := secured(t, "", tls, ca)
	if err != nil || user != "" {
		t.Fatalf("%q, %v", user, err)
	}
	var refused mongo.CommandError
	if err := db.Collection("c").FindOne(ctx, bson.D{}).Err(); !errors.As(err, &refused) || refused.Code != 13 {
		t.Fatalf("without a login: %v", err)
	}
	// Other clients look for the server for the driver's own 30 s: on a busy machine a first login may take some seconds.
	for _, encrypted := range []string{tls, "tls=false"} {
		if _, _, err := secured(t, "", encrypted, "serverSelectionTimeoutMS=3000"); err == nil {
			t.Fatalf("%v: not refused", encrypted)
		}
	}
}
