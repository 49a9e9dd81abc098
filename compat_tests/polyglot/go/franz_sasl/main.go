// franz-go: arguments are broker, mechanism, user and password; exit status 1 when one gets in that must not.
// With a fifth argument, "token", user and password are those of a delegation token.
// With CA in the environment, the file of an authority, it speaks TLS.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var isToken = len(os.Args) > 5 && os.Args[5] == "token"

func mechanism(name, user, password string) sasl.Mechanism {
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password, IsToken: isToken}.AsSha256Mechanism()
	default:
		return scram.Auth{User: user, Pass: password, IsToken: isToken}.AsSha512Mechanism()
	}
}

func attempt(bootstrap, name, user, password string) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.SASL(mechanism(name, user, password)), kgo.AllowAutoTopicCreation()}
	if path := os.Getenv("CA"); path != "" {
		authority, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(authority)
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	return client.ProduceSync(ctx, &kgo.Record{Topic: "franz-" + name, Value: []byte("value")}).FirstErr()
}

func main() {
	bootstrap, name, user, password := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	if err := attempt(bootstrap, name, user, password); err != nil {
		log.Fatalf("the right password: %v", err)
	}
	for _, wrong := range [][2]string{{user, "wrong"}, {"nobody", password}} {
		err := attempt(bootstrap, name, wrong[0], wrong[1])
		if err == nil || !strings.Contains(err.Error(), "SASL_AUTHENTICATION_FAILED") {
			log.Fatalf("user %s with a wrong password: %v", wrong[0], err)
		}
	}
}
