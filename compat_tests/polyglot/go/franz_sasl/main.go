// franz-go: arguments are broker, mechanism, user and password; exit status 1 when one gets in that must not.
// With a fifth argument, "token", user and password are those of a delegation token. With the mechanism OAUTHBEARER the
// user is a token, and the password is a token that is wrong. With the mechanism NONE there is no user.
// With CA in the environment, the file of an authority, it speaks TLS, and with CLIENT it has a certificate.
// With REFUSED in the environment, words of an error, what was given must be refused with them.
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
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var isToken = len(os.Args) > 5 && os.Args[5] == "token"

func mechanism(name, user, password string) sasl.Mechanism {
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: user}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password, IsToken: isToken}.AsSha256Mechanism()
	default:
		return scram.Auth{User: user, Pass: password, IsToken: isToken}.AsSha512Mechanism()
	}
}

// tlsConfig is that of the files in the environment: CA, an authority, and CLIENT, a key and its certificates.
func tlsConfig() (*tls.Config, error) {
	path := os.Getenv("CA")
	if path == "" {
		return nil, nil
	}
	authority, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authority)
	if path := os.Getenv("CLIENT"); path != "" {
		own, err := tls.LoadX509KeyPair(path, path)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

func attempt(bootstrap, name, user, password string) error {
	options := []kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.AllowAutoTopicCreation()}
	if name != "NONE" {
		options = append(options, kgo.SASL(mechanism(name, user, password)))
	}
	config, err := tlsConfig()
	if err != nil {
		return err
	}
	if config != nil {
		options = append(options, kgo.DialTLSConfig(config))
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

func mustBeRefused(err error, words string) {
	if err == nil || !strings.Contains(err.Error(), words) {
		log.Fatalf("%q expected, not: %v", words, err)
	}
}

func main() {
	bootstrap, name, user, password := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	if words := os.Getenv("REFUSED"); words != "" {
		mustBeRefused(attempt(bootstrap, name, user, password), words)
		return
	}
	if err := attempt(bootstrap, name, user, password); err != nil {
		log.Fatalf("what is right: %v", err)
	}
	switch name {
	case "NONE":
	case "OAUTHBEARER":
		// It expects nothing in the first answer, in which the reason is.
		mustBeRefused(attempt(bootstrap, name, password, ""), "unexpected data in oauth response")
	default:
		mustBeRefused(attempt(bootstrap, name, user, "wrong"), "SASL_AUTHENTICATION_FAILED")
		mustBeRefused(attempt(bootstrap, name, "nobody", password), "SASL_AUTHENTICATION_FAILED")
	}
}
