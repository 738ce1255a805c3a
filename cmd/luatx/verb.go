package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// need is the precondition of a command.
type need int

const (
	// aService is a service that has committed something. Another address is an error.
	aService need = iota
	// newService is a service that may not have committed anything yet. An address of another keyspace is an error.
	newService
	// aServer is a server. The namespace and the keyspace are optional.
	aServer
	// ownServer is a server that the command finds by its own flags.
	ownServer
	// noServer means that the command needs no server.
	noServer
)

// verb is a row of the table of commands. It defines the flags, arguments, help, confirmation and exit statuses.
type verb struct {
	name  string // one or two words
	args  string // after the flags: brackets for optional ones, an ellipsis for several
	short string
	long  string
	one   string // when the exit status is 1, in addition to the common cases
	needs need

	changes   bool // changes data that others use, so it shows a preview first and must be confirmed
	acts      bool // in the operator's name
	unnamed   bool // checks that name itself
	reasoned  bool // needs a reason, which the audit records
	limited   bool // by the capacities of the service
	retaining bool // for as long as the service does

	// flags defines the verb's own flags and returns its action.
	flags func(*flag.FlagSet) action
}

// action runs a verb. If the verb changes something, the action is first called for a preview, with session.preview set.
type action func(ctx context.Context, s *session, args []string) error

// programs are the commands that need no service.
var programs = []verb{demoVerb, benchVerb}

// verbs returns all commands, in the order of the help.
func verbs() []verb {
	return slices.Concat(
		programs,
		[]verb{statsVerb, historyVerb, blockedVerb, drainVerb},
		eventVerbs,
		parkedVerbs,
		deadVerbs,
		inboxVerbs,
		positionVerbs,
		timerVerbs,
		[]verb{renameVerb, compareVerb},
		pauseVerbs,
		[]verb{auditVerb, tailVerb, processesVerb, triggersVerb, streamsVerb, repairVerb, doctorVerb, serveVerb, scriptsVerb, completionVerb},
	)
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

// reportedError is a failure that the output already shows.
type reportedError struct{ error }

func (v verb) run(ctx context.Context, args []string, std standard) error {
	s := &session{std: std}
	flags, do := v.define(&s.place)
	args, err := interleaved(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		v.help(flags, std.out)
		return err
	}
	if err == nil {
		err = v.check(s.place, args)
	}
	if err != nil {
		return usageError{fmt.Errorf("%w; luatx %s -h lists the flags", err, v.name)}
	}
	s.out = newPrinter(std.out, s.json)
	if v.needs <= aServer {
		if err := s.connect(ctx, v); err != nil {
			return err
		}
		defer func() { _ = s.client.Close() }() // the client is not used again
	}
	return errors.Join(v.perform(ctx, s, do, args), s.out.flush())
}

// check checks the command line against the row of the table.
func (v verb) check(p place, args []string) error {
	words, several := strings.Fields(v.args), strings.Contains(v.args, "…")
	for i, word := range words {
		noun, missing := strings.Trim(word, "…"), len(args) <= i
		switch {
		case strings.HasPrefix(word, "["):
		case missing && strings.HasSuffix(word, "…"):
			return fmt.Errorf("%s is missing; give one or more", noun)
		case missing, i == len(words)-1 && !several && len(args) > len(words):
			return fmt.Errorf("give exactly one %s", noun)
		}
	}
	switch {
	case v.args == "" && len(args) > 0:
		return fmt.Errorf("unexpected argument %q", args[0])
	case p.yes && p.dryRun:
		return errors.New("--dry-run and --yes are both set; use one of them")
	case v.reasoned && p.reason == "":
		return errors.New("--reason is missing; the audit records it")
	}
	return nil
}

// define defines the verb's flags, and returns its action.
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

// interleaved parses flags before, between and after arguments.
func interleaved(flags *flag.FlagSet, args []string) (plain []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, unknownFlag(flags, err)
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
	fmt.Fprintf(out, "%s\n\n%s\n", line, cmp.Or(strings.TrimSpace(v.long), v.short+"."))
	if v.changes {
		fmt.Fprintf(out, "\n%s\n", confirmation)
	}
	if v.one != "" {
		fmt.Fprintf(out, "\nThe exit status is 1 %s. luatx help lists the others.\n", v.one)
	}
	fmt.Fprint(out, "\nFlags:\n\n")
	flags.SetOutput(out)
	flags.PrintDefaults()
}
