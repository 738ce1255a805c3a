package message

import "slices"

// Matcher selects messages by their attributes. A nil Matcher matches all messages.
type Matcher func(Attributes) bool

func (m Matcher) matches(a Attributes) bool { return m == nil || m(a) }

// MatchType returns a Matcher for messages of any of the types.
func MatchType(types ...string) Matcher {
	return func(a Attributes) bool { return slices.Contains(types, a.Type()) }
}

// MatchSource returns a Matcher for messages from any of the sources.
func MatchSource(sources ...string) Matcher {
	return func(a Attributes) bool { return slices.Contains(sources, a.Source()) }
}

// MatchAll returns a Matcher for messages that all of the matchers match.
func MatchAll(matchers ...Matcher) Matcher {
	return func(a Attributes) bool {
		return !slices.ContainsFunc(matchers, func(m Matcher) bool { return !m.matches(a) })
	}
}

// MatchAny returns a Matcher for messages that at least one of the matchers matches.
func MatchAny(matchers ...Matcher) Matcher {
	return func(a Attributes) bool {
		return slices.ContainsFunc(matchers, func(m Matcher) bool { return m.matches(a) })
	}
}
