// sarama: arguments are broker, version of the handshake, mechanism, user and password; exit status 1 when one gets in
// that must not. The handshake of version 0 has bare tokens. With the mechanism OAUTHBEARER the user is a token, and the
// password is a token that is wrong. With the mechanism NONE there is no user.
// With CA in the environment, the file of an authority, it speaks TLS, and with CLIENT it has a certificate.
// With REFUSED in the environment, words of an error, what was given must be refused with them.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"log"
	"os"
	"strings"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (c *scramClient) Begin(user, password, authorizationID string) error {
	client, err := c.hash.NewClient(user, password, authorizationID)
	if err == nil {
		c.conversation = client.NewConversation()
	}
	return err
}

func (c *scramClient) Step(challenge string) (string, error) { return c.conversation.Step(challenge) }
func (c *scramClient) Done() bool                            { return c.conversation.Done() }

type bearer string

func (b bearer) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(b)}, nil
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

func attempt(bootstrap, handshake, mechanism, user, password string) error {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Net.SASL.Enable = mechanism != "NONE"
	config.Net.SASL.Handshake = true
	config.Net.SASL.Version = sarama.SASLHandshakeV1
	if handshake == "0" {
		config.Net.SASL.Version = sarama.SASLHandshakeV0
		config.ApiVersionsRequest = false
	}
	config.Net.SASL.Mechanism = sarama.SASLMechanism(mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = user, password
	hash := scram.SHA256
	if mechanism == "SCRAM-SHA-512" {
		hash = scram.SHA512
	}
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: hash} }
	config.Net.SASL.TokenProvider = bearer(user)
	trusted, err := tlsConfig()
	if err != nil {
		return err
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = trusted != nil, trusted
	config.Metadata.Retry.Max = 0
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	_, _, err = producer.SendMessage(
		&sarama.ProducerMessage{Topic: "sarama-" + mechanism, Value: sarama.StringEncoder("value")})
	return err
}

func mustBeRefused(err error, words string) {
	if err == nil || !strings.Contains(err.Error(), words) {
		log.Fatalf("%q expected, not: %v", words, err)
	}
}

func main() {
	bootstrap, handshake, mechanism, user, password := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	if words := os.Getenv("REFUSED"); words != "" {
		mustBeRefused(attempt(bootstrap, handshake, mechanism, user, password), words)
		return
	}
	if err := attempt(bootstrap, handshake, mechanism, user, password); err != nil {
		log.Fatalf("%s with what is right: %v", mechanism, err)
	}
	words := "SASL Authentication failed"
	if handshake == "0" && mechanism != "OAUTHBEARER" {
		// With OAUTHBEARER it is of version 1 in any case. The connection ends without a word, as with Kafka.
		words = "EOF"
	}
	switch mechanism {
	case "NONE":
	case "OAUTHBEARER":
		mustBeRefused(attempt(bootstrap, handshake, mechanism, password, ""), words)
	default:
		mustBeRefused(attempt(bootstrap, handshake, mechanism, user, "wrong"), words)
		mustBeRefused(attempt(bootstrap, handshake, mechanism, "nobody", password), words)
	}
}
