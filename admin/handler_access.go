package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Access is what somebody may do; who may more may the lesser as well. Its zero value may nothing.
type Access int

// What somebody may do.
const (
	// MayNothing may nothing.
	MayNothing Access = iota
	// MayView may look at everything but payloads, which Identity.Payloads grants.
	MayView
	// MayRetry may re-arm, pause, resume, fix shards, and stop operations other than a discard.
	MayRetry
	// MayPurge may discard and erase events, stop a discard, and make the inbox forget.
	MayPurge
)

// String returns nothing, view, retry or purge.
func (a Access) String() string {
	switch {
	case a >= MayPurge:
		return "purge"
	case a == MayRetry:
		return "retry"
	case a == MayView:
		return "view"
	}
	return "nothing"
}

// ParseAccess reads view, retry or purge.
func ParseAccess(text string) (Access, error) {
	for _, a := range []Access{MayView, MayRetry, MayPurge} {
		if text == a.String() {
			return a, nil
		}
	}
	return MayNothing, fmt.Errorf("admin: no access is called %q: use view, retry or purge", text)
}

// Identity is somebody who asks.
type Identity struct {
	// Name is recorded in the audit; 1 to 256 bytes.
	Name string
	// May is what that one may do.
	May Access
	// Payloads grants the right to read the data of events, as far as HandlerConfig.Redact lets it, and to export them. It
	// does not depend on May, beyond MayView. The audit records each use.
	Payloads bool
}

// ErrUnknown is what an authorizer returns where it does not know who asks.
var ErrUnknown = errors.New("admin: who asks is not known")

// Token is a secret and who has it.
type Token struct {
	// Secret has at least 16 bytes.
	Secret   string
	Identity Identity
}

// Tokens is an authorizer of secrets, which come as a bearer token or, from a browser, as the password of basic
// authentication, whose user name does not matter.
func Tokens(tokens ...Token) (func(*http.Request) (Identity, error), error) {
	type known struct {
		sum [sha256.Size]byte
		who Identity
	}
	if len(tokens) == 0 {
		return nil, errors.New("admin: Tokens needs one token at least")
	}
	all, owners := make([]known, len(tokens)), map[string]string{}
	for i, token := range tokens {
		name := token.Identity.Name
		if len(token.Secret) < 16 {
			return nil, fmt.Errorf("admin: Token.Secret of %q has %d bytes: use 16 or more, at random", name, len(token.Secret))
		}
		if owner, taken := owners[token.Secret]; taken {
			return nil, fmt.Errorf("admin: Token.Secret of %q is also that of %q: use a secret of its own for each token", name, owner)
		}
		owners[token.Secret] = name
		all[i] = known{sha256.Sum256([]byte(token.Secret)), token.Identity}
	}
	return func(r *http.Request) (who Identity, err error) {
		secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			_, secret, _ = r.BasicAuth()
		}
		sum := sha256.Sum256([]byte(secret))
		err = ErrUnknown
		for _, k := range all { // all of them, whichever it is
			if subtle.ConstantTimeCompare(sum[:], k.sum[:]) == 1 {
				who, err = k.who, nil
			}
		}
		return who, err
	}, nil
}
