package process

// SetMost bounds the list.
func (l *List) SetMost(n int) { l.most = n }

// Keys returns the keys of the list.
func (l *List) Keys() []string { return l.keys }
