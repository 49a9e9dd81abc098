// sarama: arguments are broker, version of the handshake, user and password; exit status 1 when one gets in that
// must not. The handshake of version 0 has bare tokens. With CA in the environment, the file of an authority, it speaks
// TLS.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"log"
	"os"

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

func attempt(bootstrap, handshake, mechanism, user, password string) error {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Net.SASL.Enable = true
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
	if path := os.Getenv("CA"); path != "" {
		authority, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(authority)
		config.Net.TLS.Enable = true
		config.Net.TLS.Config = &tls.Config{RootCAs: trusted}
	}
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

func main() {
	bootstrap, handshake, user, password := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		if err := attempt(bootstrap, handshake, mechanism, user, password); err != nil {
			log.Fatalf("%s with the right password: %v", mechanism, err)
		}
		for _, wrong := range [][2]string{{user, "wrong"}, {"nobody", password}} {
			if err := attempt(bootstrap, handshake, mechanism, wrong[0], wrong[1]); err == nil {
				log.Fatalf("%s: user %s got in with a wrong password", mechanism, wrong[0])
			}
		}
	}
}
