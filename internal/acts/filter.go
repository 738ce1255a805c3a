package acts

import "github.com/luatx/luatx/outbox"

// FilterField is a text of a filter, with its name in flags, URLs and JSON.
type FilterField struct {
	Name, Usage string
	Value       *string
}

// FilterFields returns the texts of a filter.
func FilterFields(f *outbox.Filter) []FilterField {
	return []FilterField{
		{"aggregate", "events of the shard of this aggregate", &f.Aggregate},
		{"destination", "events for this destination", &f.Destination},
		{"type", "events of this type", &f.Type},
		{"key", "events of this ordering key", &f.Key},
		{"class", "events whose last failure has this class; luatx stats lists the classes", &f.Class},
		{"text", "events whose last failure contains this text", &f.Text},
	}
}
