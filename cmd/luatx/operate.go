package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
)

// verb is one command.
type verb struct {
	name  string // of one or two words
	args  string // what stands behind the flags
	short string
	long  string
	// anywhere: it needs no namespace and no keyspace; offline: no server either; alone: it finds its server itself, and has
	// none of the common flags.
	anywhere, offline, alone bool
	acts                     bool // in the operator's name
	unnamed                  bool // and asks for that name itself
	limited                  bool // by the capacities of the service
	retaining                bool // for as long as the service does
	// flags defines the verb's own flags and returns what it does.
	flags func(*flag.FlagSet) action
}

type action func(ctx context.Context, s *session, args []string) error

// programs are the commands that need no service.
var programs = []verb{demoVerb, benchVerb}

// verbs are all commands, in the order of the help.
func verbs() []verb {
	return slices.Concat(
		programs,
		[]verb{statsVerb, drainVerb},
		parkedVerbs,
		inboxVerbs,
		[]verb{renameVerb, compareVerb},
		pauseVerbs,
		[]verb{auditVerb, tailVerb, streamsVerb, repairVerb, doctorVerb, serveVerb, scriptsVerb, completionVerb},
	)
}

// place says where the service's keys are, and who acts on them. Each flag defaults to a variable of the environment.
type place struct {
	redis, namespace, keyspace, prefix, as   string
	json                                     bool
	retention                                time.Duration
	events, bytes, parked, parkedBytes, lane int
}

func (p *place) flags(flags *flag.FlagSet, v verb) {
	if v.alone {
		return
	}
	flags.BoolVar(&p.json, "json", false, "print JSON, an object a line")
	if v.offline {
		return
	}
	flags.StringVar(&p.redis, "redis", "", "`address` of the server or the cluster (host:port,…), or its redis:// URL (default $REDIS_URL, $REDIS_ADDR, $REDIS_HOST:$REDIS_PORT, 127.0.0.1:6379)")
	flags.StringVar(&p.namespace, "namespace", "", "Config.Namespace of the service (default $LUATX_NAMESPACE)")
	flags.StringVar(&p.keyspace, "keyspace", "", "its keyspace: partitions=`n` or own (default $LUATX_KEYSPACE)")
	flags.StringVar(&p.prefix, "prefix", "", "the keyspace's `prefix` (default $LUATX_PREFIX)")
	if v.acts {
		flags.StringVar(&p.as, "as", "", "`name` of who acts, for the audit (default $LUATX_OPERATOR, $USER)")
	}
	if v.retaining {
		flags.DurationVar(&p.retention, "retention", 0, "Config.Retention of the service; without it nothing is repaired")
	}
	if v.limited {
		flags.IntVar(&p.events, "outbox-capacity", 0, "Config.OutboxCapacity of the service, where it has set one")
		flags.IntVar(&p.bytes, "outbox-bytes", 0, "its Config.OutboxBytes")
		flags.IntVar(&p.parked, "parked-capacity", 0, "its Config.ParkedCapacity")
		flags.IntVar(&p.parkedBytes, "parked-bytes", 0, "its Config.ParkedBytes")
		flags.IntVar(&p.lane, "lane-capacity", 0, "its Config.LaneCapacity")
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
}

// operate runs a verb, if there is one of that name, and returns the exit status.
func operate(ctx context.Context, words []string, std standard) (code int, found bool) {
	v, rest, found := findVerb(words)
	if !found {
		return 0, false
	}
	err := v.run(ctx, rest, std)
	if errors.Is(err, flag.ErrHelp) {
		return statusFine, true
	}
	var told toldError
	switch code = status(ctx, err); {
	case code == statusInterrupted:
		fmt.Fprintf(std.err, "luatx %s: interrupted\n", v.name)
	case err != nil && !errors.As(err, &told):
		fmt.Fprintf(std.err, "luatx %s: %s\n", v.name, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return code, true
}

func findVerb(words []string) (v verb, rest []string, found bool) {
	for _, v := range verbs() {
		name := strings.Fields(v.name)
		if len(words) >= len(name) && slices.Equal(words[:len(name)], name) {
			return v, words[len(name):], true
		}
	}
	return verb{}, nil, false
}

// toldError is a failure that the output tells of.
type toldError struct{ error }

func (v verb) run(ctx context.Context, args []string, std standard) error {
	s := &session{std: std}
	flags, do := v.define(&s.place)
	args, err := interleaved(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		v.help(flags, std.out)
		return err
	}
	if err == nil && v.args == "" && len(args) > 0 {
		err = fmt.Errorf("unexpected argument %q", args[0])
	}
	if err != nil {
		return usageError{fmt.Errorf("%w; luatx %s -h lists the flags", err, v.name)}
	}
	s.out = newPrinter(std.out, s.json)
	if !v.offline && !v.alone {
		if err := s.connect(ctx, v); err != nil {
			return usageError{err}
		}
		defer func() { _ = s.client.Close() }() // at the end of its use
	}
	return errors.Join(do(ctx, s, args), s.out.flush())
}

// define defines the verb's flags, and returns what it does.
func (v verb) define(p *place) (*flag.FlagSet, action) {
	flags := flag.NewFlagSet("luatx "+v.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	p.flags(flags, v)
	if v.flags == nil {
		return flags, completionFlags(flags)
	}
	return flags, v.flags(flags)
}

// interleaved parses flags before, between and behind arguments.
func interleaved(flags *flag.FlagSet, args []string) (plain []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return plain, nil
		}
		if before := len(args) - flags.NArg() - 1; before >= 0 && args[before] == "--" {
			return append(plain, flags.Args()...), nil
		}
		plain, args = append(plain, flags.Arg(0)), flags.Args()[1:]
	}
}

func (v verb) help(flags *flag.FlagSet, out io.Writer) {
	line := "luatx " + v.name + " [flags]"
	if v.args != "" {
		line += " " + v.args
	}
	fmt.Fprintf(out, "%s\n\n%s\n\nFlags:\n\n", line, cmp.Or(strings.TrimSpace(v.long), v.short+"."))
	flags.SetOutput(out)
	flags.PrintDefaults()
}

// connect reaches the server and makes the operator of the service.
func (s *session) connect(ctx context.Context, v verb) error {
	target, err := s.target(ctx)
	if err != nil {
		return err
	}
	namespace, keyspace := cmp.Or(s.namespace, os.Getenv("LUATX_NAMESPACE")), cmp.Or(s.keyspace, os.Getenv("LUATX_KEYSPACE"))
	s.namespace = namespace
	if v.anywhere {
		namespace, keyspace = cmp.Or(namespace, "luatx"), cmp.Or(keyspace, "partitions=1")
	}
	if namespace == "" || keyspace == "" {
		return errors.New("--namespace and --keyspace: say those of the service's luatx.Config, or set LUATX_NAMESPACE and LUATX_KEYSPACE")
	}
	layout, err := parseKeyspace(keyspace, cmp.Or(s.prefix, os.Getenv("LUATX_PREFIX")))
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
		_ = s.client.Close() // nobody uses it
	}
	return err
}

var errAs = errors.New("--as: say who acts, it is recorded")

// target is the server that --redis names, or the environment.
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

// errYes is what stands in the way of what cannot be taken back.
var errYes = usageError{errors.New("nothing was changed: with --yes it is done")}
