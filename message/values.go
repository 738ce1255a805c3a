package message

import "reflect"

// valueNode is one in-process value in a linked list, newest first. Nodes never change, so copies of a message may share them.
type valueNode struct {
	key, val any
	older    *valueNode
}

// WithValue adds an in-process value to the message. Context makes it visible, Copy copies it, and encoding omits it. As with
// context.WithValue, the key must be comparable and should have a type of its own. A value with a nil or incomparable key is
// dropped, because it could not be found.
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
