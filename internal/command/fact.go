package command

// Fact is the information that a server reports about a command. table_gen.go has the facts of a
// current Redis.
type Fact struct {
	// Name in capitals, with its subcommand: XGROUP CREATE.
	Name string
	// Since and Group are told by COMMAND DOCS.
	Since, Group string
	// Arity counts the name; negative: at least that many arguments.
	Arity int
	Flags Flag
	Keys  []KeySpec
}

// Flag is a set of a command's properties.
type Flag int

// The flags that matter here.
const (
	Write Flag = 1 << iota
	NoScript
	Blocking
)

// KeySpec is a key specification of COMMAND.
type KeySpec struct {
	Place Place
	// Begin is the position of the first key, or of the number of keys.
	Begin int
	// Last is the position of the last key after Begin; negative: from the end of the arguments.
	Last, Step int
	// Changes is true where the command may change these keys.
	Changes bool
}

// Place says how the keys of a KeySpec are found.
type Place int

// The values of Place.
const (
	Fixed   Place = iota // at these positions
	Counted              // their number stands before them
	Hidden               // anywhere: the package finds them itself
)
