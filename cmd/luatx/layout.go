package main

import (
	"crypto/rand"
	"strings"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
)

// partitions is the number of tags for the shop's customers and products.
const partitions = 6

// group is the consumer group that reads orders and sold lines.
const group = "shop"

// layout returns the demo's keys. All begin with the namespace of the run. Each carries the tag that places it in the slot
// of the streams and books of the same customers and products.
type layout struct {
	namespace string
	space     luatx.Keyspace
}

func newLayout(namespace string) layout {
	return layout{namespace, luatx.Partitions(partitions).WithPrefix(namespace)}
}

// newNamespace returns a unique namespace.
func newNamespace() string { return "luatx-demo-" + strings.ToLower(rand.Text()[:10]) }

// The streams.
func (l layout) orders(tag string) string { return l.space.TagKey(tag, "stream", "orders") }
func (l layout) sold(tag string) string   { return l.space.TagKey(tag, "stream", "sold") }
func (l layout) outbox(tag string) string { return l.space.TagKey(tag, "stream", "outbox") }

// The books are hashes.
func (l layout) spent(tag string) string   { return l.space.TagKey(tag, "spent") }   // pence by customer
func (l layout) bought(tag string) string  { return l.space.TagKey(tag, "orders") }  // number of orders by customer
func (l layout) applied(tag string) string { return l.space.TagKey(tag, "applied") } // number of times by invoice
func (l layout) stock(tag string) string   { return l.space.TagKey(tag, "stock") }   // units taken by product
func (l layout) lines(tag string) string   { return l.space.TagKey(tag, "lines") }   // number of events by invoice and product

// mark returns the key by which pipeline mode remembers a message.
func (l layout) mark(id message.Identity) string { return l.space.TagKey("mark", id.Source, id.ID) }

// config returns the configuration of the Transactor in every process of the run.
func (l layout) config() luatx.Config {
	return luatx.Config{Namespace: l.namespace, Keyspace: l.space}
}
