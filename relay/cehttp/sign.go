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

// The kinds of signatures. Each mode has one, so that a request cannot be passed off as one of the other mode.
const (
	kindBody    = "v1"   // Structured and Batched: Standard Webhooks
	kindHeaders = "v1ce" // Binary: the attributes are signed as well
)

// minSecret is the length of the shortest secret that is accepted, in bytes.
const minSecret = 16

// defaultMaxAge is how old a signature may be, or how far in the future, where nothing else is said.
const defaultMaxAge = 5 * time.Minute

// ErrSignature says that a request was not signed by anybody who has a secret, or too long ago.
var ErrSignature = errors.New("cehttp: the signature does not hold")

// ParseSecret reads a secret as it is handed around: whsec_ and base64.
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

// CheckSecret refuses secrets of less than 16 bytes.
func CheckSecret(secret []byte) error {
	if len(secret) < minSecret {
		return fmt.Errorf("cehttp: a secret of %d bytes: use %d random bytes or more", len(secret), minSecret)
	}
	return nil
}

// Sign adds the signature headers to a request that holds the event with this id, or the batch: when it was signed, and
// one signature a secret, separated by blanks. A receiver that knows one of the secrets can verify it, so secrets are
// exchanged by signing with both for a while.
//
// A signature is the base64 of an HMAC-SHA256 and begins with its kind. Of Structured and Batched mode it is v1, over
//
//	<Webhook-Id> "." <Webhook-Timestamp> "." <body>
//
// the timestamp in Unix seconds: any library for Standard Webhooks verifies it. Binary mode has the attributes in
// headers, so that its kind is another one, v1ce, over
//
//	"v1ce" LF <Webhook-Id> LF <Webhook-Timestamp> LF
//	then of Content-Type and each header whose name begins with ce-, in the order of the names in small letters:
//	<name> ":" <value, blanks around it cut off> LF
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

// Verify reports whether a request was signed with one of the secrets, no longer than maxAge ago (and no further in the
// future; 0 means 5 minutes). Signatures are compared in constant time. Its errors are ErrSignature, or say what is
// wrong with the secrets. A request that was recorded can be sent again while its signature is young: the id of an
// event is what tells a duplicate.
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

// content is what is signed, and the kind of the signature.
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
