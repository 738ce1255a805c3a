// Package luatxtest helps to test services that use luatx. It provides a Transactor with its own Redis, checks of emitted events,
// a clock that tests move, crashes at chosen points, and conformance tests for publishers and drivers.
//
// Import it only in tests, because it links an embedded Redis.
package luatxtest
