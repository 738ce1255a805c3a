package idempotency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
)

// Replayed is the header of a repeated response. Stripe's API has the same header.
const Replayed = "Idempotent-Replayed"

const maxKey = 255

// New returns a middleware that runs handlers in transactions of t. The handler records its writes on luatx.CmdableFromContext or
// luatx.TxFromContext of the request's context. Its response is sent after the commit.
//
//   - A response with a status below 500 commits and is stored, without Set-Cookie, for t's Retention. A repeated request gets it with
//     the header Idempotent-Replayed, and the handler does not run. This also holds for concurrent requests.
//   - A response with a status from 500 on writes nothing and is not stored, and the key may be used again. The same holds for 401,
//     403, 408, 425 and 429, which mean that the client may not do this now.
//   - A request with a used key but another method, address or body gets 422. A request without a key gets 400.
//   - If Redis cannot commit, or the outcome is unknown, the response is 503 with Retry-After. The client must send the request again
//     with the same key. If a procedure aborts, the response is 409 with its reason.
//
// A handler may run more than once, but only one run takes effect; see luatx.Tx.Read. It must not begin its own transaction. GET,
// HEAD, OPTIONS and TRACE bypass the middleware. If a stored response was evicted, a repeated request gets 409, because the
// effect is there.
func New(t *luatx.Transactor, cfg Config) (func(http.Handler) http.Handler, error) {
	if t == nil {
		return nil, errors.New("idempotency: New needs a Transactor")
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return func(next http.Handler) http.Handler { return &middleware{t, cfg, next} }, nil
}

type middleware struct {
	t    *luatx.Transactor
	cfg  Config
	next http.Handler
}

func (m *middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		m.next.ServeHTTP(w, r)
		return
	}
	c, err := m.read(w, r)
	if err == nil {
		err = c.commit()
	}
	var p *problem
	switch {
	case err == nil:
		if c.replayed {
			w.Header().Set(Replayed, "true")
		}
		c.answer.write(w)
	case errors.As(err, &p):
		p.write(w)
	default:
		m.explain(r, err).write(w)
	}
}

// call is the handling of one request.
type call struct {
	*middleware
	r         *http.Request
	aggregate string
	body      []byte
	id        string // the digest of scope and key; empty without a key
	asked     string // the digest of the request

	answer   *response
	replayed bool
}

// read reads the whole request, and returns a problem if the request is invalid.
func (m *middleware) read(w http.ResponseWriter, r *http.Request) (*call, error) {
	key, err := m.key(r)
	if err != nil {
		return nil, err
	}
	aggregate, err := m.cfg.Aggregate(r)
	if err == nil {
		_, err = m.t.Keyspace().Tag(aggregate)
	}
	if err != nil {
		return nil, &problem{"Unknown aggregate", http.StatusBadRequest, err.Error()}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, m.cfg.MaxRequest))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &problem{"Request too large", http.StatusRequestEntityTooLarge, fmt.Sprintf("a body has at most %d bytes", large.Limit)}
	case err != nil:
		return nil, &problem{"Request not read", http.StatusBadRequest, "the body ended early"}
	}
	c := &call{middleware: m, r: r, aggregate: aggregate, body: body, asked: digest(r.Method, r.URL.RequestURI(), string(body))}
	if key != "" {
		scope := m.cfg.Scope(r)
		if scope == "" {
			return nil, &problem{"Unknown principal", http.StatusForbidden, "a request with " + m.cfg.Header + " needs a principal: authenticate first"}
		}
		c.id = digest(scope, key)
	}
	return c, nil
}

// digest hashes parts with their lengths, so that different parts never have the same digest.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// key returns the idempotency key of a request. It returns "" if there is none and the key is optional.
func (m *middleware) key(r *http.Request) (string, error) {
	values := r.Header.Values(m.cfg.Header)
	if len(values) == 0 && m.cfg.KeyOptional {
		return "", nil
	}
	refused := func(detail string) (string, error) {
		return "", &problem{"Idempotency key missing or wrong", http.StatusBadRequest, m.cfg.Header + detail}
	}
	if len(values) != 1 {
		return refused(fmt.Sprintf(" must be there once, and is %d times; send a key of your own with each new request", len(values)))
	}
	key := values[0]
	if len(key) > 1 && key[0] == '"' && key[len(key)-1] == '"' { // quoted, as in the draft
		key = key[1 : len(key)-1]
	}
	if key == "" || len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return refused(fmt.Sprintf(" must be 1 to %d printable ASCII characters", maxKey))
	}
	return key, nil
}

var (
	errKept    = errors.New("idempotency: the request was processed before")
	errNotKept = errors.New("idempotency: the handler's response is not stored")
)

// commit runs the handler and commits, or finds the stored response.
func (c *call) commit() error {
	for range 2 { // a concurrent duplicate finds the stored response in the second run
		c.answer, c.replayed = nil, false
		result, err := c.t.Transact(c.r.Context(), c.aggregate, c.run, c.options()...)
		switch {
		case c.replayed && (err == nil || errors.Is(err, errKept)):
			if c.answer.Request != c.asked {
				return &problem{
					"Idempotency key used before", http.StatusUnprocessableEntity,
					"another request had this key: send each new request with a key of its own",
				}
			}
			return nil
		case errors.Is(err, errNotKept), err == nil && result.Outcome != luatx.Duplicate:
			return nil
		case err != nil:
			return err
		}
	}
	return &problem{"Answer not kept", http.StatusConflict, "the request was applied before, and what was answered is not kept any more"}
}

func (c *call) options() []luatx.Option {
	if c.id == "" {
		return nil
	}
	return []luatx.Option{luatx.WithID("http:" + c.id)}
}

// run is the function of the transaction.
func (c *call) run(tx *luatx.Tx) error {
	c.answer, c.replayed = nil, false
	ctx := tx.Context(c.r.Context())
	key, err := c.kept(ctx, tx)
	if err != nil {
		return err
	}
	w := newRecorder(c.cfg.MaxResponse)
	r := c.r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(c.body))
	c.next.ServeHTTP(w, r)
	if c.answer, err = w.response(c.asked); err != nil {
		return err
	}
	switch {
	case c.answer.isTemporary():
		return errNotKept
	case key == "":
		return nil
	}
	text, err := json.Marshal(c.answer.withoutCookies())
	if err != nil {
		return err
	}
	return luatx.Queued(tx.Pipeline().Set(ctx, key, text, c.t.Config().Retention))
}

// kept returns the key for the stored response. If there is one, it returns errKept.
func (c *call) kept(ctx context.Context, tx *luatx.Tx) (string, error) {
	if c.id == "" {
		return "", nil
	}
	key, err := tx.Key("idempotency", c.id)
	if err != nil {
		return "", err
	}
	text, err := tx.Read().Get(ctx, key).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return key, nil
	case err != nil:
		return "", err
	}
	c.answer = new(response)
	if err := json.Unmarshal(text, c.answer); err != nil {
		return "", fmt.Errorf("idempotency: read the stored response of key %q: %w", key, err)
	}
	c.replayed = true
	return "", errKept
}

// faults are errors that the same request would get again.
var faults = []error{
	luatx.ErrCrossSlot, luatx.ErrCommandRefused, luatx.ErrTooLarge, luatx.ErrNested, luatx.ErrTxClosed,
	luatx.ErrReadAfterWrite, luatx.ErrKeyspace, errLarge,
}

// explain returns the problem for an error of a transaction, with instructions for the client.
func (m *middleware) explain(r *http.Request, err error) *problem {
	level, p := m.cfg.Logger.Warn, &problem{
		"Not committed", http.StatusServiceUnavailable, "send the same request again, under the same key: it has its effect once",
	}
	var aborted *luatx.AbortError
	var command *luatx.CommandError
	var broken *luatx.RollbackError
	switch {
	case errors.As(err, &aborted):
		return &problem{"Refused", http.StatusConflict, aborted.Reason}
	case errors.As(err, &command), errors.As(err, &broken),
		slices.ContainsFunc(faults, func(fault error) bool { return errors.Is(err, fault) }):
		level, p = m.cfg.Logger.Error, &problem{"Not committed", http.StatusInternalServerError, "the request cannot be applied as it is"}
	}
	level("idempotency: request not committed", "method", r.Method, "path", r.URL.Path, "status", p.Status, "error", err)
	return p
}
