package luatx

import (
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
)

// RefusedError is returned if the server does not accept a transaction because it is out of memory, is read-only, has too few
// replicas, cannot persist, or denies the user a right. Nothing was written. Test for one code with errors.Is(err,
// &luatx.RefusedError{Code: "OOM"}), and for any code with errors.As.
type RefusedError struct {
	// Code is the first word of the server's error: OOM, READONLY, NOREPLICAS, MISCONF, NOPERM …
	Code string
	// Text is the server's error.
	Text string
	// Remedy is the fix. It is empty if luatx has no advice beyond the text.
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

// Is reports whether target is a RefusedError with the same code, or with an empty code.
func (e *RefusedError) Is(target error) bool {
	refused, ok := target.(*RefusedError)
	return ok && (refused.Code == "" || refused.Code == e.Code)
}

// Unwrap returns the error that ended the wait for the server, or nil.
func (e *RefusedError) Unwrap() error { return e.cause }

// remedies are the instructions for the server's error codes.
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

// denials are the texts by which servers report NOPERM inside a script, where the code is lost.
var denials = []string{
	"ACL failure in script", "can't run this command or subcommand", "can't access at least one of the keys", "has no permissions",
}

// refused returns the RefusedError for an error text of the server.
func refused(text string, cause error) *RefusedError {
	code := codeOf(text)
	return &RefusedError{Code: code, Text: text, Remedy: remedies[code], cause: cause}
}

// codeOf returns the code of a server's error. Before Redis 7, an error that ends a script has the code inside its text.
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

// denied reports whether a server's error inside a script means that the user lacks a right.
func denied(text string) bool {
	return slices.ContainsFunc(denials, func(denial string) bool { return strings.Contains(text, denial) })
}

// refusal returns a RefusedError if err is the server's own error, or ends with it. Otherwise it returns nil.
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
