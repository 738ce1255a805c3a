// Package luatxtest helps to test services that use luatx: a Transactor on a Redis of the test's own in one line, what was
// emitted, a clock that tests move, crashes at chosen points, and conformance tests for publishers and drivers.
//
// Only tests should import it: it links an embedded Redis.
package luatxtest
