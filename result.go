package luatx

// Outcome says how a transaction came to be committed.
type Outcome int

// The outcomes. With an error the outcome is zero: nothing was committed.
const (
	// Committed now.
	Committed Outcome = iota + 1
	// Replayed: an earlier request of the same call or delivery had committed. The effect is there once.
	Replayed
	// Duplicate: another call or delivery with the same id had committed. The effect is there once, and is not
	// this one's.
	Duplicate
)

// String returns the outcome in lower case.
func (o Outcome) String() string {
	if o < Committed || o > Duplicate {
		return "not committed"
	}
	return [...]string{"committed", "replayed", "duplicate"}[o-1]
}

// Result is what a successful transaction returns.
type Result struct {
	// Outcome says whether this call committed, or an earlier one had.
	Outcome Outcome
	// Replicated says that the effect has reached what Config.Durability asks for; false where it asks for
	// nothing, or where that is not known.
	Replicated bool
}
