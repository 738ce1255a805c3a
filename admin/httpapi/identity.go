package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/luatx/luatx/admin/internal/guard"
)

// Access is a right of an Identity. Each right includes the lesser ones; the zero value grants nothing.
type Access = guard.Access

const (
	// MayView may read everything except payloads, which Identity.Payloads grants.
	MayView = guard.MayView
	// MayRetry may re-arm events, retry dead letters, pause, resume, fix shards, and stop operations other than a discard.
	MayRetry = guard.MayRetry
	// MayPurge may discard and erase events, discard and import dead letters, stop a discard, and make the inbox forget.
	MayPurge = guard.MayPurge
)

// Identity is the sender of a request.
type Identity struct {
	// Name is recorded in the audit; 1 to 256 bytes.
	Name string
	// May is the right of the sender.
	May Access
	// Payloads grants the right to read the data of events, as far as Config.Redact lets it, and to export them. It does
	// not depend on May, beyond MayView. The audit records each use.
	Payloads bool
}

// ErrUnknown is the error of an authorizer that cannot identify the sender of a request.
var ErrUnknown = guard.ErrUnknown

// Tokens returns an authorizer by secrets. Each secret has at least 16 bytes and one owner. A request has it as a bearer
// token or, from a browser, as the password of basic authentication, whose user name is ignored.
func Tokens(owners map[string]Identity) (func(*http.Request) (Identity, error), error) {
	type known struct {
		sum [sha256.Size]byte
		who Identity
	}
	if len(owners) == 0 {
		return nil, errors.New("httpapi: Tokens: no token is given; use at least one")
	}
	var all []known
	for secret, who := range owners {
		if len(secret) < 16 {
			return nil, fmt.Errorf("httpapi: the token of %q has %d bytes; use at least 16 random bytes", who.Name, len(secret))
		}
		all = append(all, known{sha256.Sum256([]byte(secret)), who})
	}
	return func(r *http.Request) (who Identity, err error) {
		secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			_, secret, _ = r.BasicAuth()
		}
		sum := sha256.Sum256([]byte(secret))
		err = ErrUnknown
		for _, k := range all { // compare all of them, to take the same time
			if subtle.ConstantTimeCompare(sum[:], k.sum[:]) == 1 {
				who, err = k.who, nil
			}
		}
		return who, err
	}, nil
}
