// Package idempotency makes an HTTP request with an Idempotency-Key take effect once, even if the client sends it several times.
// The handler's writes, its events and its response commit as one transaction. A repeated request gets the first response.
//
// The header follows the IETF draft "The Idempotency-Key HTTP Header Field" (draft-ietf-httpapi-idempotency-key-header). A
// middleware that stores the key first and the response afterwards loses a request whose process dies in between, or applies it
// twice. This package stores both in the script that writes.
package idempotency
