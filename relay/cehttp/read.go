package cehttp

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/luatx/luatx/message"
)

// defaultMaxBytes is the default of ReadConfig.MaxBytes.
const defaultMaxBytes = 4 << 20

// errCut is the error if the body could not be read completely.
var errCut = errors.New("cehttp: read")

// errVerification is the error if a ReadConfig neither verifies requests nor disables verification, or does both.
var errVerification = errors.New("cehttp: read a request: ReadConfig.Secrets and DisableVerification are both set or both empty; set exactly one")

// ReadConfig configures Read. Exactly one of Secrets and DisableVerification is required.
type ReadConfig struct {
	// Secrets are the keys with which a request may be signed; one of them is enough. Set two while you replace a secret.
	Secrets [][]byte
	// DisableVerification makes Read accept unsigned requests. Set it only if something in front of the receiver authenticates
	// the sender. Defaults to false.
	DisableVerification bool
	// MaxAge is the maximum age of a signature, and how far its timestamp may lie in the future. Defaults to 5 minutes.
	MaxAge time.Duration
	// MaxBytes is the maximum size of the body in bytes. Defaults to 4 MiB.
	MaxBytes int64
}

// Read verifies a request and returns its events. A relay may send an event more than once, so the receiver must recognize
// duplicates by source and id. Use Status to get the status code for an error. Read returns an error if cfg has no secrets
// and cfg.DisableVerification is not set.
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

// Status returns the status code that tells a relay what an error of Read means. The relay parks the event if the request
// is not a valid CloudEvent (400) or is too large (413). It retries the event if the request was incomplete (408), if the
// signature is wrong (401), or if the error is the receiver's own (500). For a nil error Status returns 204.
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
