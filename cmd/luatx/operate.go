package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
)

// place is the address of the service's keys, and the operator's name. Each flag defaults to an environment variable.
type place struct {
	redis, namespace, keyspace, prefix, as   string
	reason                                   string
	json, yes, dryRun                        bool
	retention                                time.Duration
	events, bytes, parked, parkedBytes, lane int
}

func (p *place) flags(flags *flag.FlagSet, v verb) {
	if v.changes {
		flags.BoolVar(&p.yes, "yes", false, "make the changes without asking for confirmation")
		flags.BoolVar(&p.dryRun, "dry-run", false, "show only the preview")
	}
	if v.reasoned {
		flags.StringVar(&p.reason, "reason", "", "reason, which the audit records; required")
	}
	if v.needs == ownServer {
		return
	}
	flags.BoolVar(&p.json, "json", false, "print one JSON object per line")
	if v.needs == noServer {
		return
	}
	flags.StringVar(&p.redis, "redis", "", "`address` of the server or the cluster (host:port,…), or its redis:// URL (default $REDIS_URL, $REDIS_ADDR, $REDIS_HOST:$REDIS_PORT, 127.0.0.1:6379)")
	flags.StringVar(&p.namespace, "namespace", "", "Config.Namespace of the service (default $LUATX_NAMESPACE)")
	flags.StringVar(&p.keyspace, "keyspace", "", "keyspace of the service: partitions=`n` or own (default $LUATX_KEYSPACE)")
	flags.StringVar(&p.prefix, "prefix", "", "`prefix` of the keyspace (default $LUATX_PREFIX)")
	if v.acts {
		flags.StringVar(&p.as, "as", "", "`name` of the operator, which the audit records (default $LUATX_OPERATOR, $USER)")
	}
	if v.retaining {
		flags.DurationVar(&p.retention, "retention", 0, "Config.Retention of the service; required for repairs")
	}
	if v.limited {
		flags.IntVar(&p.events, "outbox-capacity", 0, "Config.OutboxCapacity of the service, if it is set")
		flags.IntVar(&p.bytes, "outbox-bytes", 0, "Config.OutboxBytes of the service")
		flags.IntVar(&p.parked, "parked-capacity", 0, "Config.ParkedCapacity of the service")
		flags.IntVar(&p.parkedBytes, "parked-bytes", 0, "Config.ParkedBytes of the service")
		flags.IntVar(&p.lane, "lane-capacity", 0, "Config.LaneCapacity of the service")
	}
}

// session is one run of a verb.
type session struct {
	place

	std        standard
	client     redis.UniversalClient
	transactor *luatx.Transactor
	operator   *admin.Operator
	out        *printer

	preview bool   // nothing may be changed
	named   bool   // the namespace and the keyspace are set
	space   string // the keyspace, as flags
	planned string // description of the changes in the preview
	shown   int    // number of changes in the preview

	before time.Time // the time of the preview; see cutoff
}

// operate runs the verb with the given name, if there is one, and returns the exit status.
func operate(ctx context.Context, words []string, std standard) (code int, found bool) {
	v, rest, found := findVerb(words)
	if !found {
		return 0, false
	}
	err := v.run(ctx, rest, std)
	if errors.Is(err, flag.ErrHelp) {
		return statusFine, true
	}
	var reported reportedError
	switch code = status(ctx, err); {
	case code == statusInterrupted:
		fmt.Fprintf(std.err, "luatx %s: interrupted\n", v.name)
	case err != nil && !errors.As(err, &reported):
		fmt.Fprintf(std.err, "luatx %s: %s\n", v.name, oneLine(err))
	}
	return code, true
}

// oneLine returns an error as one line for a terminal. It may contain names from a server.
func oneLine(err error) string { return plain(strings.ReplaceAll(err.Error(), "\n", "; ")) }

// connect connects to the server, creates the operator of the service, and checks its address.
func (s *session) connect(ctx context.Context, v verb) error {
	if err := s.open(ctx, v); err != nil {
		return usageError{err}
	}
	if v.needs == aServer {
		return nil
	}
	err := s.operator.CheckAddress(ctx)
	if wrong, ok := errors.AsType[*admin.AddressError](err); ok && v.needs != aService && !wrong.Misplaced() {
		fmt.Fprintf(s.std.err, "luatx %s: nothing was committed here yet: %s\n", v.name, oneLine(wrong))
		err = nil
	}
	if err != nil {
		_ = s.client.Close() // the client is not used
	}
	return err
}

// open connects to the server and creates the operator.
func (s *session) open(ctx context.Context, v verb) error {
	target, err := s.target(ctx)
	if err != nil {
		return err
	}
	namespace, keyspace := cmp.Or(s.namespace, os.Getenv("LUATX_NAMESPACE")), cmp.Or(s.keyspace, os.Getenv("LUATX_KEYSPACE"))
	s.named = namespace != "" && keyspace != ""
	s.namespace = namespace
	if v.needs == aServer {
		namespace, keyspace = cmp.Or(namespace, "luatx"), cmp.Or(keyspace, "partitions=1")
	}
	if namespace == "" || keyspace == "" {
		return errors.New("--namespace and --keyspace are missing; use those of the service's luatx.Config, or set LUATX_NAMESPACE and LUATX_KEYSPACE")
	}
	prefix := cmp.Or(s.prefix, os.Getenv("LUATX_PREFIX"))
	if s.space = "--keyspace " + keyspace; prefix != "" {
		s.space += " --prefix " + prefix
	}
	layout, err := parseKeyspace(keyspace, prefix)
	if err != nil {
		return err
	}
	s.as = cmp.Or(s.as, os.Getenv("LUATX_OPERATOR"), os.Getenv("USER"))
	if s.as == "" && v.acts && !v.unnamed {
		return errAs
	}
	s.client = target.connectAs(16)
	s.transactor, err = luatx.New(s.client, luatx.Config{
		Namespace: namespace, Keyspace: layout, Retention: s.retention, OutboxCapacity: s.events, OutboxBytes: s.bytes,
		ParkedCapacity: s.parked, ParkedBytes: s.parkedBytes, LaneCapacity: s.lane,
	})
	if err == nil {
		s.operator, err = admin.NewOperator(s.transactor, admin.OperatorConfig{Client: s.client, Name: cmp.Or(s.as, "luatx"), Destinations: anyOf(environmentDestinations())})
	}
	if err != nil {
		_ = s.client.Close() // the client is not used
	}
	return err
}

var errAs = errors.New("--as is missing; set the name of the operator for the audit")

// target returns the server named by --redis or the environment.
func (s *session) target(ctx context.Context) (server, error) {
	text := cmp.Or(s.redis, os.Getenv("REDIS_URL"), os.Getenv("REDIS_ADDR"))
	if text == "" {
		text = net.JoinHostPort(cmp.Or(os.Getenv("REDIS_HOST"), "127.0.0.1"), cmp.Or(os.Getenv("REDIS_PORT"), "6379"))
	}
	return reach(ctx, text, func(target *server) {
		if !strings.Contains(text, "://") {
			target.Username, target.Password = os.Getenv("REDIS_USERNAME"), os.Getenv("REDIS_PASSWORD")
		}
	})
}
