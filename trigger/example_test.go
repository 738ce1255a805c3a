package trigger_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/trigger"
)

// A function for each entry of a stream.
func ExampleRuntime() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client.XAdd(ctx, &redis.XAddArgs{Stream: "mails", ID: "1770000000123-0", Values: []any{"data", "Hello!", "to", "ada@example.org"}})

	mailer := trigger.New(trigger.Config{
		Function:  "send-mail",
		Connector: trigger.Connector{URL: "redis://" + server.Addr()},
		Mode:      trigger.ModeStream, Stream: "mails", Group: "mailer",
		Run: func(_ context.Context, msg *message.RawMessage) error {
			var mail trigger.Payload
			if err := json.Unmarshal(msg.Data, &mail); err != nil {
				return err
			}
			fmt.Println(mail.ID, mail.Attributes["to"], *mail.Body.Text)
			cancel() // and Run returns when the entry is acked
			return nil
		},
	})
	err = mailer.Run(ctx)
	fmt.Println(mailer.Health().State, mailer.Stats().Acked, err)
	// Output:
	// 1770000000123-0 ada@example.org Hello!
	// Stopped 1 <nil>
}

// The error names the wrong option. Run does nothing else.
func ExampleConfig_Validate() {
	err := trigger.Config{
		Function:  "send-mail",
		Run:       func(context.Context, *message.RawMessage) error { return nil },
		Connector: trigger.Connector{URL: "redis://localhost:6379"},
		Mode:      trigger.ModePubSub,
	}.Validate()
	fmt.Println(err)
	// Output: trigger: option Channels: wrong option; set a channel or a pattern
}
