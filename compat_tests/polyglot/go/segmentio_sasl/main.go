// kafka-go: arguments are broker, mechanism, user and password; exit status 1 when one gets in that must not. With CA in
// the environment, the file of an authority, it speaks TLS.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

func mechanism(name, user, password string) (sasl.Mechanism, error) {
	switch name {
	case "PLAIN":
		return plain.Mechanism{Username: user, Password: password}, nil
	case "SCRAM-SHA-256":
		return scram.Mechanism(scram.SHA256, user, password)
	default:
		return scram.Mechanism(scram.SHA512, user, password)
	}
}

func attempt(bootstrap, name, user, password string) error {
	chosen, err := mechanism(name, user, password)
	if err != nil {
		return err
	}
	transport := &kafka.Transport{SASL: chosen}
	if path := os.Getenv("CA"); path != "" {
		authority, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(authority)
		transport.TLS = &tls.Config{RootCAs: trusted}
	}
	writer := &kafka.Writer{
		Addr:                   kafka.TCP(bootstrap),
		Topic:                  "segmentio-" + name,
		Transport:              transport,
		AllowAutoTopicCreation: true,
		RequiredAcks:           kafka.RequireAll,
		BatchTimeout:           time.Millisecond,
	}
	defer writer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return writer.WriteMessages(ctx, kafka.Message{Value: []byte("value")})
}

func main() {
	bootstrap, name, user, password := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	var err error
	// The first attempt makes the topic, of which this client may not hear in time.
	for range 3 {
		if err = attempt(bootstrap, name, user, password); err == nil {
			break
		}
	}
	if err != nil {
		log.Fatalf("the right password: %v", err)
	}
	for _, wrong := range [][2]string{{user, "wrong"}, {"nobody", password}} {
		err := attempt(bootstrap, name, wrong[0], wrong[1])
		if err == nil || !strings.Contains(err.Error(), "SASL Authentication Failed") {
			log.Fatalf("user %s with a wrong password: %v", wrong[0], err)
		}
	}
}
