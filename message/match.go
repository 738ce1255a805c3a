package message

import "slices"

// Matcher chooses messages by their attributes. A nil Matcher matches all.
type Matcher func(Attributes) bool

func (m Matcher) matches(a Attributes) bool { return m == nil || m(a) }

// MatchType matches messages of one of the types.
func MatchType(types ...string) Matcher {
	return func(a Attributes) bool { return slices.Contains(types, a.Type()) }
}

// MatchSource matches messages from one of the sources.
func MatchSource(sources ...string) Matcher {
	return func(a Attributes) bool { return slices.Contains(sources, a.Source()) }
}

// MatchAll matches what every one of the matchers matches.
func MatchAll(matchers ...Matcher) Matcher {
	return func(a Attributes) bool {
		return !slices.ContainsFunc(matchers, func(m Matcher) bool { return !m.matches(a) })
	}
}

// MatchAny matches what at least one of the matchers matches.
func MatchAny(matchers ...Matcher) Matcher {
	return func(a Attributes) bool {
		return slices.ContainsFunc(matchers, func(m Matcher) bool { return m.matches(a) })
	}
}
