package cehttp

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/luatx/luatx/message"
)

// defaultMaxBytes bounds the body of a request.
const defaultMaxBytes = 4 << 20

// errCut says that the body could not be read to its end.
var errCut = errors.New("cehttp: read")

// errVerification says that a ReadConfig neither verifies requests nor disables verification.
var errVerification = errors.New("cehttp: read a request: set exactly one of ReadConfig.Secrets and DisableVerification")

// ReadConfig configures Read. Exactly one of Secrets and DisableVerification is required.
type ReadConfig struct {
	// Secrets are the keys of which one must have signed the request. Give two while you exchange them.
	Secrets [][]byte
	// DisableVerification makes Read accept requests that nobody has signed. Set it only if something in front of the
	// receiver authenticates the sender. Defaults to false.
	DisableVerification bool
	// MaxAge is how long ago. Defaults to 5 minutes.
	MaxAge time.Duration
	// MaxBytes is the longest body. Defaults to 4 MiB.
	MaxBytes int64
}

// Read verifies a request and returns its events. Status returns the status code for an error. A relay sends each event
// at least once, so a receiver recognizes a duplicate by source and id. Read fails if cfg has no secrets, unless
// cfg.DisableVerification is set.
func Read(w http.ResponseWriter, r *http.Request, cfg ReadConfig) ([]*message.RawMessage, error) {
	if (len(cfg.Secrets) == 0) != cfg.DisableVerification {
		return nil, errVerification
	}
	limit := cfg.MaxBytes
	if limit <= 0 {
		limit = defaultMaxBytes
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCut, err)
	}
	if len(cfg.Secrets) > 0 {
		if err := Verify(r.Header, body, cfg.MaxAge, cfg.Secrets...); err != nil {
			return nil, err
		}
	}
	return Decode(r.Header, body)
}

// Status returns the status that reports an error of Read to a relay. The relay parks the event if it is not a
// CloudEvent (400) or too large (413). It retries if the request was not complete (408), or if a secret is wrong (401,
// or 500 for the receiver's own secret).
func Status(err error) int {
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return http.StatusNoContent
	case errors.Is(err, ErrSignature):
		return http.StatusUnauthorized
	case errors.Is(err, message.ErrDecode):
		return http.StatusBadRequest
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errCut):
		return http.StatusRequestTimeout
	}
	return http.StatusInternalServerError
}
