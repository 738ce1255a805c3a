package stack_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
)

func TestConstructorsNameTheMissingField(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	_, noClient := stack.Pipelined(nil, stack.Config{OutboxStream: "out"})
	_, noStream := stack.Pipelined(client, stack.Config{})
	_, noTransactor := stack.Scripted(nil, stack.Config{})
	for says, err := range map[string]error{
		"stack: Pipelined needs a client":     noClient,
		"stack: Config.OutboxStream is empty": noStream,
		"stack: Scripted needs a Transactor":  noTransactor,
	} {
		if err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("error %v, want %s", err, says)
		}
	}
}

func TestConfigReachesTheMiddlewaresOfEachMode(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		process := func(name string, mw message.Middleware) int {
			runs := 0
			router := message.NewRouter(message.PipeConfig{})
			redistest.Must(t, router.Use(mw))
			redistest.Must(t, router.AddHandler(name, nil, message.NewHandler(func(context.Context, *message.TypedMessage[any]) ([]*message.Message, error) {
				runs++
				return nil, nil
			})))
			for range 2 {
				attrs := message.Attributes{"id": "1", "source": "/shop", "type": "charge", "subject": "c0"}
				_, err := router.Process(t.Context(), message.New(nil, attrs, message.NewAcking(nil, nil)))
				redistest.Must(t, err)
			}
			return runs
		}

		s := newService(t, client, modes[0])
		s.cfg.Retention = time.Hour
		mw, err := stack.Pipelined(client, s.cfg)
		redistest.Must(t, err)
		if runs := process("charge", mw); runs != 1 {
			t.Errorf("pipelined: %d runs", runs)
		}
		if ttl := client.TTL(t.Context(), s.name+":inbox:/shop:1").Val(); ttl <= 59*time.Minute || ttl > time.Hour {
			t.Errorf("the mark lives for %v", ttl)
		}

		for name, c := range map[string]struct {
			cfg  stack.Config
			runs [2]int // of two handlers; each one gets the message twice
		}{
			"defaults":            {stack.Config{}, [2]int{2, 2}},
			"precheck":            {stack.Config{Precheck: true}, [2]int{1, 1}},
			"precheck, one scope": {stack.Config{Precheck: true, Scope: "billing"}, [2]int{1, 0}},
		} {
			s := newService(t, client, modes[1])
			mw, err := stack.Scripted(s.transactor, c.cfg)
			redistest.Must(t, err)
			if runs := [2]int{process("charge", mw), process("mail", mw)}; runs != c.runs {
				t.Errorf("%s: %v runs, want %v", name, runs, c.runs)
			}
		}
	})
}
