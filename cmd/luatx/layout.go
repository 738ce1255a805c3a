package main

import (
	"crypto/rand"
	"strings"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
)

// partitions is how many tags the shop's customers and products spread over.
const partitions = 6

// group is the consumer group that reads orders and sold lines.
const group = "shop"

// layout names the demo's keys. All of them begin with the namespace of the run, and each carries the tag whose slot
// it shares with the streams and books of the same customers and products.
type layout struct {
	namespace string
	space     luatx.Keyspace
}

func newLayout(namespace string) layout {
	return layout{namespace, luatx.Partitions(partitions).WithPrefix(namespace)}
}

// newNamespace returns a namespace that no other run has.
func newNamespace() string { return "luatx-demo-" + strings.ToLower(rand.Text()[:10]) }

// The streams.
func (l layout) orders(tag string) string { return l.space.TagKey(tag, "stream", "orders") }
func (l layout) sold(tag string) string   { return l.space.TagKey(tag, "stream", "sold") }
func (l layout) outbox(tag string) string { return l.space.TagKey(tag, "stream", "outbox") }

// The books, a hash each.
func (l layout) spent(tag string) string   { return l.space.TagKey(tag, "spent") }   // pence by customer
func (l layout) bought(tag string) string  { return l.space.TagKey(tag, "orders") }  // orders by customer
func (l layout) applied(tag string) string { return l.space.TagKey(tag, "applied") } // times by invoice
func (l layout) stock(tag string) string   { return l.space.TagKey(tag, "stock") }   // units taken by product
func (l layout) lines(tag string) string   { return l.space.TagKey(tag, "lines") }   // events by invoice and product

// mark is the key by which the pipeline mode remembers a message.
func (l layout) mark(id message.Identity) string { return l.space.TagKey("mark", id.Source, id.ID) }

// config is that of the Transactor in every process of the run.
func (l layout) config() luatx.Config {
	return luatx.Config{Namespace: l.namespace, Keyspace: l.space}
}
