// franz-go with GSSAPI: arguments are broker, krb5.conf, realm, user, keytab and service; exit status 1 when it does not
// get in.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
)

func main() {
	settings, err := config.Load(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	keys, err := keytab.Load(os.Args[5])
	if err != nil {
		log.Fatal(err)
	}
	auth := kerberos.Auth{
		Client:  client.NewWithKeytab(os.Args[4], os.Args[3], keys, settings, client.DisablePAFXFAST(true)),
		Service: os.Args[6],
	}
	producer, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]), kgo.SASL(auth.AsMechanism()), kgo.AllowAutoTopicCreation())
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := producer.Ping(ctx); err != nil {
		log.Fatal(err)
	}
	record := &kgo.Record{Topic: "franz-kerberos", Value: []byte("value")}
	if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
		log.Fatal(err)
	}
}
