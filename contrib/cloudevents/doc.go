// Package cloudevents exchanges events with the Go SDK of CloudEvents (github.com/cloudevents/sdk-go/v2): [ToEvent] and
// [FromEvent] convert them, a [Publisher] lets a relay publish by any client of the SDK, and a [Receiver] gives what such a
// client receives to a router, and answers after the commit.
package cloudevents
