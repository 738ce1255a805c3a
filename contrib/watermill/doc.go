// Package watermill connects luatx with Watermill (github.com/ThreeDotsLabs/watermill). It provides Redis Streams as a Publisher
// and a Subscriber of Watermill, a relay.Publisher for any Publisher of Watermill, and a middleware that runs a Watermill handler
// in a luatx transaction.
package watermill
