package cehttp_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay/cehttp"
)

var oldSecret, newSecret, noSecret = []byte("the old secret 1"), []byte("the new secret 2"), []byte("nobody's secret 3")

func TestSignatureMatchesAnotherImplementationOfStandardWebhooks(t *testing.T) {
	t.Parallel()
	secret, err := cehttp.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Content-Type": {"application/cloudevents+json"}}
	cehttp.Sign(header, []byte(`{"test": 2432232314}`), "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), secret)
	if got := header.Get("webhook-signature"); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("signature %q", got)
	}
	for _, text := range []string{"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_?", "whsec_c2hvcnQ="} {
		if _, err := cehttp.ParseSecret(text); err == nil {
			t.Errorf("%q is a secret", text)
		}
	}
}

// signed returns a request as a receiver gets it.
func signed(t testing.TB, mode cehttp.Mode, secrets ...[]byte) (http.Header, []byte) {
	t.Helper()
	header, body, err := cehttp.Encode(mode, event(message.Attributes{"subject": "Grüße", "destination": "x"}, []byte(`{"total":5}`)))
	if err != nil {
		t.Fatal(err)
	}
	cehttp.Sign(header, body, "e 1", time.Now(), secrets...)
	return wired(t, header, body)
}

func TestVerifyRejectsChangedRequestsAndOtherSecrets(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(h http.Header, body []byte) []byte // nil if unchanged
		with   [][]byte
		holds  bool
	}{
		{name: "as sent", with: [][]byte{oldSecret}, holds: true},
		{name: "the other of two", with: [][]byte{newSecret}, holds: true},
		{name: "one of the receiver's", with: [][]byte{noSecret, oldSecret}, holds: true},
		{name: "another secret", with: [][]byte{noSecret}},
		{name: "body", with: [][]byte{oldSecret}, change: func(_ http.Header, b []byte) []byte { return bytes.Replace(b, []byte("5"), []byte("6"), 1) }},
		{name: "id", with: [][]byte{oldSecret}, change: func(h http.Header, b []byte) []byte { h.Set(cehttp.HeaderID, "e2"); return b }},
		{name: "time", with: [][]byte{oldSecret}, change: func(h http.Header, b []byte) []byte {
			h.Set(cehttp.HeaderTimestamp, strings.TrimSuffix(h.Get(cehttp.HeaderTimestamp), "0")+"1")
			return b
		}},
		{name: "no time", with: [][]byte{oldSecret}, change: func(h http.Header, b []byte) []byte { h.Set(cehttp.HeaderTimestamp, "soon"); return b }},
		{name: "no signature", with: [][]byte{oldSecret}, change: func(h http.Header, b []byte) []byte { h.Del(cehttp.HeaderSignature); return b }},
		{name: "an empty signature", with: [][]byte{oldSecret}, change: func(h http.Header, b []byte) []byte { h.Set(cehttp.HeaderSignature, "v1, v1ce,"); return b }},
		{name: "two ids", with: [][]byte{oldSecret}, change: func(h http.Header, b []byte) []byte { h.Add(cehttp.HeaderID, "e2"); return b }},
		{name: "mode", with: [][]byte{oldSecret}, change: func(h http.Header, b []byte) []byte {
			if strings.Contains(h.Get("Content-Type"), "cloudevents") {
				h.Set("Content-Type", "application/json")
			} else {
				h.Set("Content-Type", "application/cloudevents+json")
			}
			return b
		}},
	}
	modes := map[string]cehttp.Mode{"structured": cehttp.Structured, "binary": cehttp.Binary, "batched": cehttp.Batched}
	for _, test := range tests {
		for name, mode := range modes {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					header, body := signed(t, mode, oldSecret, newSecret)
					if test.change != nil {
						body = test.change(header, body)
					}
					err := cehttp.Verify(header, body, 0, test.with...)
					if test.holds && err != nil || !test.holds && !errors.Is(err, cehttp.ErrSignature) {
						t.Error(err)
					}
				})
			})
		}
	}
}

func TestVerifyRejectsChangedAttributeHeaders(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(http.Header){
		"changed":      func(h http.Header) { h.Set("Ce-Type", "order.cancelled") },
		"added":        func(h http.Header) { h.Set("Ce-Admin", "true") },
		"taken away":   func(h http.Header) { h.Del("Ce-Subject") },
		"content type": func(h http.Header) { h.Set("Content-Type", "text/plain") },
	} {
		header, body := signed(t, cehttp.Binary, oldSecret)
		change(header)
		if err := cehttp.Verify(header, body, 0, oldSecret); !errors.Is(err, cehttp.ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	header, body := signed(t, cehttp.Binary, oldSecret)
	header.Set("X-Forwarded-For", "proxy")
	if err := cehttp.Verify(header, body, 0, oldSecret); err != nil {
		t.Errorf("a proxy's header: %v", err)
	}
}

func TestVerifyRejectsOldAndFutureSignatures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		header, body := signed(t, cehttp.Structured, oldSecret)
		time.Sleep(time.Minute)
		if err := cehttp.Verify(header, body, time.Minute, oldSecret); err != nil {
			t.Errorf("a minute old: %v", err)
		}
		if err := cehttp.Verify(header, body, 59*time.Second, oldSecret); !errors.Is(err, cehttp.ErrSignature) {
			t.Errorf("too old: %v", err)
		}
		time.Sleep(5 * time.Minute)
		if err := cehttp.Verify(header, body, 0, oldSecret); !errors.Is(err, cehttp.ErrSignature) {
			t.Errorf("too old by default: %v", err)
		}
		cehttp.Sign(header, body, "e 1", time.Now().Add(time.Hour), oldSecret)
		if err := cehttp.Verify(header, body, 0, oldSecret); !errors.Is(err, cehttp.ErrSignature) {
			t.Errorf("of the future: %v", err)
		}
	})
	header, body := signed(t, cehttp.Structured, oldSecret)
	for _, secrets := range [][][]byte{nil, {nil}, {oldSecret, []byte("short")}} {
		if err := cehttp.Verify(header, body, 0, secrets...); err == nil || errors.Is(err, cehttp.ErrSignature) {
			t.Errorf("secrets %q: %v", secrets, err)
		}
	}
}

// cut is a body that ends too early.
type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

func TestReadReturnsEventsOrAnErrorWithAStatus(t *testing.T) {
	t.Parallel()
	cfg := cehttp.ReadConfig{Secrets: [][]byte{oldSecret}, MaxBytes: 1000}
	header, body := signed(t, cehttp.Structured, oldSecret)
	read := func(cfg cehttp.ReadConfig, h http.Header, body []byte) ([]*message.RawMessage, int) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
		r.Header = h
		events, err := cehttp.Read(httptest.NewRecorder(), r, cfg)
		return events, cehttp.Status(err)
	}
	if events, status := read(cfg, header, body); status != http.StatusNoContent || len(events) != 1 || events[0].Subject() != "Grüße" {
		t.Errorf("%v, %d", events, status)
	}
	if _, status := read(cfg, http.Header{"Content-Type": header["Content-Type"]}, body); status != http.StatusUnauthorized {
		t.Errorf("unsigned: %d", status)
	}
	if _, status := read(cehttp.ReadConfig{DisableVerification: true}, http.Header{}, body); status != http.StatusBadRequest {
		t.Errorf("no event: %d", status)
	}
	if _, status := read(cehttp.ReadConfig{DisableVerification: true, MaxBytes: 10}, header, body); status != http.StatusRequestEntityTooLarge {
		t.Errorf("too long: %d", status)
	}
	if _, status := read(cehttp.ReadConfig{Secrets: [][]byte{nil}}, header, body); status != http.StatusInternalServerError {
		t.Errorf("no secret to verify with: %d", status)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", cut{})
	_, err := cehttp.Read(httptest.NewRecorder(), r, cfg)
	if cehttp.Status(err) != http.StatusRequestTimeout {
		t.Errorf("cut off: %v", err)
	}
}

func TestReadFailsWithoutSecretsUnlessVerificationIsDisabled(t *testing.T) {
	t.Parallel()
	header, body := signed(t, cehttp.Structured, oldSecret)
	for name, test := range map[string]struct {
		cfg  cehttp.ReadConfig
		want int
	}{
		"no secrets":           {cehttp.ReadConfig{}, http.StatusInternalServerError},
		"an empty list":        {cehttp.ReadConfig{Secrets: [][]byte{}}, http.StatusInternalServerError},
		"disabled by name":     {cehttp.ReadConfig{DisableVerification: true}, http.StatusNoContent},
		"disabled and secrets": {cehttp.ReadConfig{DisableVerification: true, Secrets: [][]byte{oldSecret}}, http.StatusInternalServerError},
		"secrets":              {cehttp.ReadConfig{Secrets: [][]byte{oldSecret}}, http.StatusNoContent},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
		r.Header = header
		events, err := cehttp.Read(httptest.NewRecorder(), r, test.cfg)
		if cehttp.Status(err) != test.want || (err == nil) != (len(events) == 1) {
			t.Errorf("%s: %d events, %v", name, len(events), err)
		}
	}
}

func TestReadBoundsTheAgeOfASignatureInBothDirections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		age, most time.Duration
		want      int
	}{
		{4 * time.Minute, 0, http.StatusNoContent},
		{6 * time.Minute, 0, http.StatusUnauthorized},
		{6 * time.Minute, 10 * time.Minute, http.StatusNoContent},
		{2 * time.Minute, time.Minute, http.StatusUnauthorized},
		{-4 * time.Minute, 0, http.StatusNoContent},
		{-6 * time.Minute, 0, http.StatusUnauthorized},
		{-6 * time.Minute, 10 * time.Minute, http.StatusNoContent},
		{-2 * time.Minute, time.Minute, http.StatusUnauthorized},
	} {
		header, body := signed(t, cehttp.Structured)
		cehttp.Sign(header, body, "e 1", time.Now().Add(-c.age), oldSecret)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
		r.Header = header
		_, err := cehttp.Read(httptest.NewRecorder(), r, cehttp.ReadConfig{Secrets: [][]byte{oldSecret}, MaxAge: c.most})
		if got := cehttp.Status(err); got != c.want {
			t.Errorf("signed %v ago with a MaxAge of %v: %d (%v), want %d", c.age, c.most, got, err, c.want)
		}
	}
}
