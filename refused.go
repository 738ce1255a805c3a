package luatx

import (
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
)

// RefusedError is a server that does not let a transaction in: it is out of memory, read-only, has too few replicas,
// cannot persist, or denies the user something. Nothing was written. Test for a kind with
// errors.Is(err, &luatx.RefusedError{Code: "OOM"}), for any with errors.As.
type RefusedError struct {
	// Code is the first word of the server's error: OOM, READONLY, NOREPLICAS, MISCONF, NOPERM …
	Code string
	// Text is the server's error.
	Text string
	// Remedy says what to do about it; empty where luatx knows nothing better than the text.
	Remedy string

	cause error
}

func (e *RefusedError) Error() string {
	text := "luatx: not committed: the server refuses: " + e.Text
	if e.Remedy != "" {
		text += ": " + e.Remedy
	}
	return text
}

// Is reports whether the target is a RefusedError of the same code, or of any where its code is empty.
func (e *RefusedError) Is(target error) bool {
	refused, ok := target.(*RefusedError)
	return ok && (refused.Code == "" || refused.Code == e.Code)
}

// Unwrap returns what ended the wait for the server, if anything did.
func (e *RefusedError) Unwrap() error { return e.cause }

// remedies holds what to do about a code of the server.
var remedies = map[string]string{
	"OOM":         "raise maxmemory, or delete what is not needed; what luatx keeps must not be evicted",
	"READONLY":    "the client talks to a replica: connect to the master, by a sentinel or cluster client where masters change",
	"NOREPLICAS":  "bring the replicas back, or lower min-replicas-to-write",
	"MISCONF":     "the server cannot save to disk: its log says why; free the disk, or mend the rights on its directory",
	"NOPERM":      "grant the user what docs/acl.md lists, and the commands and keys of its handlers",
	"NOAUTH":      "give the client the user's name and password",
	"WRONGPASS":   "give the client the user's name and password",
	"LOADING":     "wait until the server has read its data",
	"BUSY":        "a script holds the server: SCRIPT KILL ends one that has not written",
	"MASTERDOWN":  "the replica has lost its master: connect to the master",
	"CLUSTERDOWN": "a master is missing, or a slot is nobody's: CLUSTER INFO says which",
	"TRYAGAIN":    "the slot migrates: wait until it has moved",
}

// denials are how servers say NOPERM inside a script, where the code is lost.
var denials = []string{
	"ACL failure in script", "can't run this command or subcommand", "can't access at least one of the keys", "has no permissions",
}

// refused makes a RefusedError of a server's text.
func refused(text string, cause error) *RefusedError {
	code := codeOf(text)
	return &RefusedError{Code: code, Text: text, Remedy: remedies[code], cause: cause}
}

// codeOf finds the code in a server's error. Before Redis 7 an error that ends a script hides it in the text.
func codeOf(text string) string {
	first, _, _ := strings.Cut(text, " ")
	if _, known := remedies[first]; known {
		return first
	}
	if denied(text) {
		return "NOPERM"
	}
	for word := range strings.FieldsSeq(text) {
		if _, known := remedies[strings.TrimPrefix(word, "-")]; known {
			return strings.TrimPrefix(word, "-")
		}
	}
	return first
}

// denied reports whether a server's error inside a script says that the user lacks a right.
func denied(text string) bool {
	return slices.ContainsFunc(denials, func(denial string) bool { return strings.Contains(text, denial) })
}

// refusal makes a RefusedError of an error that is, or was at last, the server's own answer; nil of any other.
func refusal(err error) error {
	if ended, ok := errors.AsType[*eval.ServerError](err); ok {
		return refused(ended.Err.Error(), nil)
	}
	answer, ok := errors.AsType[redis.Error](err)
	if !ok || errors.Is(err, eval.ErrUnknown) {
		return nil
	}
	return refused(answer.Error(), err)
}
