// Package admin lets an operator inspect the shards of a service, act on its events, and examine its servers.
package admin
