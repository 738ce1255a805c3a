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

// need is what a command finds before it runs.
type need int

const (
	// aService is a service that has committed something. Another address is an error.
	aService need = iota
	// newService is a service that may not have committed anything yet. An address of another keyspace is an error.
	newService
	// aServer is a server. The namespace and the keyspace are optional.
	aServer
	// ownServer is a server that the command finds by flags of its own.
	ownServer
	// noServer is nothing.
	noServer
)

// verb is a row of the table of commands. Flags, arguments, help, confirmation and exit statuses follow from it.
type verb struct {
	name  string // of one or two words
	args  string // behind the flags: brackets for optional ones, an ellipsis for several
	short string
	long  string
	one   string // when the exit status is 1, beside what every command has
	needs need

	changes   bool // something that others use: shown first, and done when it is confirmed
	acts      bool // in the operator's name
	unnamed   bool // and asks for that name itself
	reasoned  bool // for a reason, which the audit records
	limited   bool // by the capacities of the service
	retaining bool // for as long as the service does

	// flags defines the verb's own flags and returns what it does.
	flags func(*flag.FlagSet) action
}

// action runs a verb. That of a verb which changes something is called for a preview first, while session.preview is set.
type action func(ctx context.Context, s *session, args []string) error

// programs are the commands that need no service.
var programs = []verb{demoVerb, benchVerb}

// verbs are all commands, in the order of the help.
func verbs() []verb {
	return slices.Concat(
		programs,
		[]verb{statsVerb, blockedVerb, drainVerb},
		eventVerbs,
		parkedVerbs,
		deadVerbs,
		inboxVerbs,
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

// reportedError is a failure that the output has reported.
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
		defer func() { _ = s.client.Close() }() // at the end of its use
	}
	return errors.Join(v.perform(ctx, s, do, args), s.out.flush())
}

// check checks what the row of the table says of the command line.
func (v verb) check(p place, args []string) error {
	words, several := strings.Fields(v.args), strings.Contains(v.args, "…")
	for i, word := range words {
		noun, missing := strings.Trim(word, "…"), len(args) <= i
		switch {
		case strings.HasPrefix(word, "["):
		case missing && strings.HasSuffix(word, "…"):
			return fmt.Errorf("name one %s or more", noun)
		case missing, i == len(words)-1 && !several && len(args) > len(words):
			return fmt.Errorf("name one %s", noun)
		}
	}
	switch {
	case v.args == "" && len(args) > 0:
		return fmt.Errorf("unexpected argument %q", args[0])
	case p.yes && p.dryRun:
		return errors.New("--dry-run and --yes: say one of them")
	case v.reasoned && p.reason == "":
		return errors.New("--reason is missing: say why, the audit records it")
	}
	return nil
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
