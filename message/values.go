package message

import "reflect"

// valueNode is one in-process value; older ones hang behind it. Nodes never change, so copies may share them.
type valueNode struct {
	key, val any
	older    *valueNode
}

// WithValue adds a value that travels with the message inside this process: it is visible through Context, copied by
// Copy, and never encoded. As with context.WithValue the key must be comparable and should be of a type of the caller's
// own; a value under any other key, nil included, is not kept, because nothing could find it.
func (m *TypedMessage[T]) WithValue(key, val any) {
	if key == nil || !reflect.TypeOf(key).Comparable() {
		return
	}
	for {
		head := m.values.Load()
		if m.values.CompareAndSwap(head, &valueNode{key: key, val: val, older: head}) {
			return
		}
	}
}

func (m *TypedMessage[T]) value(key any) (any, bool) {
	for n := m.values.Load(); n != nil; n = n.older {
		if n.key == key {
			return n.val, true
		}
	}
	return nil, false
}

func (m *TypedMessage[T]) attributes() Attributes { return m.Attributes }
