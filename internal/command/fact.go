package command

// Fact is the information that a server reports about a command. table_gen.go contains the facts of a current Redis.
type Fact struct {
	// Name is in capitals and includes the subcommand: XGROUP CREATE.
	Name string
	// Since and Group come from COMMAND DOCS.
	Since, Group string
	// Arity counts the name. A negative Arity is a minimum number of arguments.
	Arity int
	Flags Flag
	Keys  []KeySpec
}

// Flag is a set of a command's properties.
type Flag int

// The flags that this package uses.
const (
	Write Flag = 1 << iota
	NoScript
	Blocking
)

// KeySpec is a key specification from COMMAND.
type KeySpec struct {
	Place Place
	// Begin is the position of the first key, or of the number of keys.
	Begin int
	// Last is the position of the last key, relative to Begin. A negative Last counts from the end of the arguments.
	Last, Step int
	// Changes is true if the command may change these keys.
	Changes bool
}

// Place is the way to find the keys of a KeySpec.
type Place int

// The values of Place.
const (
	Fixed   Place = iota // at the given positions
	Counted              // their number precedes them
	Hidden               // anywhere; the package finds them itself
)
