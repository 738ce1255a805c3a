package mark

import "strings"

// escape escapes the source of a message, so that a colon separates it unambiguously from the id.
var escape = strings.NewReplacer("%", "%25", ":", "%3A")

// Key returns the key of the mark that pipeline mode sets for a message, unless its configuration uses another one.
func Key(source, id string) string { return "inbox:" + escape.Replace(source) + ":" + id }
