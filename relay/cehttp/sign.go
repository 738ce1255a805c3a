package cehttp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The headers of a signed request, as Standard Webhooks names them.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// The kinds of signatures. Each has its own set of modes, so that a request cannot pass for one of another mode.
const (
	kindBody    = "v1"   // Structured and Batched, as in Standard Webhooks
	kindHeaders = "v1ce" // Binary, where the attributes are signed too
)

// minSecret is the minimum length of a secret, in bytes.
const minSecret = 16

// defaultMaxAge is the default maximum age of a signature, and the default limit of how far it may lie in the future.
const defaultMaxAge = 5 * time.Minute

// ErrSignature is the error if a request was not signed with one of the secrets, or was signed too long ago.
var ErrSignature = errors.New("cehttp: the signature does not hold")

// ParseSecret decodes a secret from its text form, whsec_ followed by base64. It returns an error if the text has another
// form or the secret has less than 16 bytes.
func ParseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, "whsec_")
	if !ok {
		return nil, errors.New("cehttp: a secret begins with whsec_")
	}
	secret, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("cehttp: secret: %w", err)
	}
	return secret, CheckSecret(secret)
}

// CheckSecret returns an error if a secret has less than 16 bytes.
func CheckSecret(secret []byte) error {
	if len(secret) < minSecret {
		return fmt.Errorf("cehttp: a secret of %d bytes: use %d random bytes or more", len(secret), minSecret)
	}
	return nil
}

// Sign adds signature headers to a request that holds the event with the given id, or a batch. The headers contain the time
// of signing and one signature per secret, separated by spaces. A receiver that has one of the secrets can verify the
// request, so sign with both while you replace a secret.
//
// A signature consists of its kind and the base64 of an HMAC-SHA256. In Structured and Batched mode the kind is v1, and the
// signed text is
//
//	<Webhook-Id> "." <Webhook-Timestamp> "." <body>
//
// with the timestamp in Unix seconds. Any library for Standard Webhooks verifies such a signature. In Binary mode the
// attributes are in headers, so the kind is v1ce, and the signed text is
//
//	"v1ce" LF <Webhook-Id> LF <Webhook-Timestamp> LF
//	then for Content-Type and each header whose name begins with ce-, sorted by the names in lower case:
//	<name> ":" <value without surrounding spaces> LF
//	LF, and <body>
func Sign(header http.Header, body []byte, id string, at time.Time, secrets ...[]byte) {
	header.Set(HeaderID, escape(id))
	header.Set(HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	signatures := make([]string, len(secrets))
	kind, signed := content(header, body)
	for i, secret := range secrets {
		signatures[i] = kind + "," + signature(secret, signed)
	}
	header.Set(HeaderSignature, strings.Join(signatures, " "))
}

// Verify returns nil if a request was signed with one of the secrets, at most maxAge ago and at most maxAge in the future.
// A maxAge of 0 means 5 minutes. Verify compares signatures in constant time. It returns ErrSignature, or an error about
// the secrets. Somebody can record a request and send it again while its signature is valid, so recognize duplicates by the
// event's id.
func Verify(header http.Header, body []byte, maxAge time.Duration, secrets ...[]byte) error {
	if len(secrets) == 0 {
		return errors.New("cehttp: Verify needs a secret")
	}
	for _, secret := range secrets {
		if err := CheckSecret(secret); err != nil {
			return err
		}
	}
	if maxAge <= 0 {
		maxAge = defaultMaxAge
	}
	for _, name := range []string{HeaderID, HeaderTimestamp, HeaderSignature} {
		if len(header.Values(name)) != 1 {
			return fmt.Errorf("%w: the header %s does not come once", ErrSignature, name)
		}
	}
	seconds, err := strconv.ParseInt(header.Get(HeaderTimestamp), 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %s is no number", ErrSignature, HeaderTimestamp)
	}
	if age := time.Since(time.Unix(seconds, 0)); age > maxAge || age < -maxAge {
		return fmt.Errorf("%w: it was signed at %v, and the clock says %v", ErrSignature, time.Unix(seconds, 0).UTC(), time.Now().UTC().Truncate(time.Second))
	}
	kind, signed := content(header, body)
	for given := range strings.FieldsSeq(header.Get(HeaderSignature)) {
		text, ours := strings.CutPrefix(given, kind+",")
		if !ours {
			continue
		}
		for _, secret := range secrets {
			if hmac.Equal([]byte(text), []byte(signature(secret, signed))) {
				return nil
			}
		}
	}
	return ErrSignature
}

func signature(secret, signed []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write(signed)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// content returns the signed text of a request and the kind of its signature.
func content(header http.Header, body []byte) (kind string, signed []byte) {
	id, at := header.Get(HeaderID), header.Get(HeaderTimestamp)
	if isFormat(header.Get(headerType)) {
		return kindBody, append([]byte(id+"."+at+"."), body...)
	}
	lines := map[string]string{}
	for field, values := range header {
		name := strings.ToLower(field)
		if name == "content-type" || strings.HasPrefix(name, "ce-") {
			lines[name] += strings.Join(values, ",")
		}
	}
	var text strings.Builder
	text.WriteString(kindHeaders + "\n" + id + "\n" + at + "\n")
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		text.WriteString(name + ":" + strings.Trim(lines[name], " \t") + "\n")
	}
	text.WriteByte('\n')
	return kindHeaders, append([]byte(text.String()), body...)
}
