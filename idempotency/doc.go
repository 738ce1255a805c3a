// Package idempotency makes an HTTP request that carries an Idempotency-Key have its effect once, however often the
// client sends it: the handler's writes, its events and its response are committed as one transaction, and a repeated
// request is given the first one's response.
//
// The header follows the IETF's draft "The Idempotency-Key HTTP Header Field" (draft-ietf-httpapi-idempotency-key-header).
// A middleware that stores its key first and the response afterwards loses a request whose process dies in between, or
// applies it twice; here both are in the script that writes.
package idempotency
