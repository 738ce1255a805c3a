package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/acts"
)

// confirmation is the part about confirmation in the help of every command that changes something.
const confirmation = `The command first shows a preview, which changes nothing. On a terminal it then asks for confirmation. Without a terminal it
needs --yes. With --dry-run it shows only the preview.`

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
		return usageError{fmt.Errorf("nothing was changed; with --yes it would %s", s.planned)}
	}
	s.preview = false
	s.out.section("")
	return do(ctx, s, args)
}

// plan records the changes of a preview: their number, and the sentence that describes them. If there are none, nothing is
// confirmed.
func (s *session) plan(n int, format string, args ...any) {
	if s.shown = n; n > 0 {
		s.planned = fmt.Sprintf(format, args...)
	}
}

// counted formats a number of things: 1 event, 2 events.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// limit returns the maximum number of changes, which never exceeds the number that the operator has confirmed. 0 means any
// number.
func (s *session) limit(most int) int {
	if s.shown > 0 && (most == 0 || s.shown < most) {
		return s.shown
	}
	return most
}

// cutoff returns the time by the server's clock of the preview, or of the change if there is no preview. Changes leave out what is
// parked later.
func (s *session) cutoff(ctx context.Context) (_ time.Time, err error) {
	if s.before.IsZero() {
		s.before, err = acts.Cutoff(ctx, s.client)
	}
	return s.before, err
}

// confirmed asks the user at a terminal to confirm the plan. Without a terminal it returns false.
func (s *session) confirmed(ctx context.Context) (bool, error) {
	if !isTerminal(s.std.in) || !isTerminal(s.std.err) {
		return false, nil
	}
	fmt.Fprintf(s.std.err, "%s%s? Type yes: ", strings.ToUpper(s.planned[:1]), plain(s.planned[1:]))
	answer := make(chan string, 1)
	go func() { // reading a terminal cannot be cancelled; an interrupt ends the program
		line, _ := bufio.NewReader(s.std.in).ReadString('\n') // the end of the input does not confirm
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case text := <-answer:
		return text == "yes", nil
	}
}

// isTerminal reports whether one of the standard files is a terminal. It also returns true for /dev/null, from which no
// answer comes.
func isTerminal(file any) bool {
	f, ok := file.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
