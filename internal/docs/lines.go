package docs

import "strings"

// CodeLines counts the lines of a Go program without its imports and blank lines.
func CodeLines(program string) (n int) {
	importing := false
	for line := range strings.Lines(program) {
		switch line = strings.TrimSpace(line); {
		case line == "import (":
			importing = true
		case importing:
			importing = line != ")"
		case line != "" && !strings.HasPrefix(line, "import "):
			n++
		}
	}
	return n
}
