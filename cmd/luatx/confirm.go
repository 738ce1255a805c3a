package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// confirmation is what the help of every command that changes something says of it.
const confirmation = `The command shows what it would do, and changes nothing. On a terminal it asks whether to do it; elsewhere it needs --yes.
With --dry-run it does not ask.`

// perform runs a verb. If the verb changes something, it runs as a preview until that is confirmed.
func (v verb) perform(ctx context.Context, s *session, do action, args []string) error {
	if !v.changes || s.yes {
		return do(ctx, s, args)
	}
	s.preview = true
	err := do(ctx, s, args)
	var reported reportedError
	if s.dryRun || s.planned == "" || err != nil && !errors.As(err, &reported) {
		return err
	}
	if err := s.out.flush(); err != nil {
		return err
	}
	yes, err := s.confirmed(ctx)
	if err != nil {
		return err
	}
	if !yes {
		return usageError{fmt.Errorf("nothing was changed: with --yes it would %s", s.planned)}
	}
	s.preview = false
	s.out.section("")
	return do(ctx, s, args)
}

// plan notes what a preview would change: how many things, and the sentence that names them. Without any, nothing is asked.
func (s *session) plan(n int, format string, args ...any) {
	if s.shown = n; n > 0 {
		s.planned = fmt.Sprintf(format, args...)
	}
}

// counted is a number of things: 1 event, 2 events.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// limit is the most things that may be changed: no more than the operator has seen and confirmed. 0: any number.
func (s *session) limit(most int) int {
	if s.shown > 0 && (most == 0 || s.shown < most) {
		return s.shown
	}
	return most
}

// confirmed asks a person at a terminal whether the plan is meant. Without a terminal it returns false.
func (s *session) confirmed(ctx context.Context) (bool, error) {
	if !isTerminal(s.std.in) || !isTerminal(s.std.err) {
		return false, nil
	}
	fmt.Fprintf(s.std.err, "%s%s? Type yes: ", strings.ToUpper(s.planned[:1]), plain(s.planned[1:]))
	answer := make(chan string, 1)
	go func() { // a terminal cannot be made to stop; an interrupt ends the program
		line, _ := bufio.NewReader(s.std.in).ReadString('\n') // the end of the input is no yes
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case text := <-answer:
		return text == "yes", nil
	}
}

// isTerminal reports whether one of the standard files is a terminal. It takes /dev/null for one, too, which nobody reads or answers.
func isTerminal(file any) bool {
	f, ok := file.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
