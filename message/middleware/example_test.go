package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/message/middleware"
)

// A handler fails twice and succeeds in the third attempt. Its outputs have the correlation id of their input.
func Example() {
	router := message.NewRouter(message.PipeConfig{})
	attempts := 0
	err := errors.Join(
		router.Use(
			middleware.CorrelationID(),
			middleware.Retry(middleware.RetryConfig{MaxAttempts: 5, Backoff: message.Backoff{Base: time.Millisecond}}),
			middleware.Timeout(5*time.Second), // for each attempt
			middleware.Recover(),
		),
		router.AddHandler("charge", nil, message.NewHandler(func(context.Context, *message.TypedMessage[any]) ([]*message.Message, error) {
			if attempts++; attempts < 3 {
				return nil, errors.New("the bank does not answer")
			}
			return []*message.Message{message.New(nil, message.Attributes{message.AttrType: "charged"}, nil)}, nil
		}, message.Named("charge"))),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := router.Process(context.Background(), message.New(nil, message.Attributes{
		message.AttrID: "payment-42", message.AttrType: "charge",
	}, nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(attempts, "attempts:", out[0].Type(), out[0].CorrelationID())
	// Output: 3 attempts: charged payment-42
}
