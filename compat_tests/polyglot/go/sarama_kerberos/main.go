// sarama with GSSAPI, whose tokens are always bare: arguments are broker, krb5.conf, realm, user, keytab and service; exit
// status 1 when it does not get in.
package main

import (
	"log"
	"os"

	"github.com/IBM/sarama"
)

func main() {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLTypeGSSAPI
	config.Net.SASL.GSSAPI = sarama.GSSAPIConfig{
		AuthType:           sarama.KRB5_KEYTAB_AUTH,
		KerberosConfigPath: os.Args[2],
		Realm:              os.Args[3],
		Username:           os.Args[4],
		KeyTabPath:         os.Args[5],
		ServiceName:        os.Args[6],
		DisablePAFXFAST:    true,
	}
	config.Metadata.Retry.Max = 0
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer([]string{os.Args[1]}, config)
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()
	message := &sarama.ProducerMessage{Topic: "sarama-kerberos", Value: sarama.StringEncoder("value")}
	if _, _, err = producer.SendMessage(message); err != nil {
		log.Fatal(err)
	}
}
