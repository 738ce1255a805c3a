// Package pretty formats JSON for people, within bounds: a body of deeply nested arrays would otherwise grow with the
// square of its size.
package pretty

import (
	"bytes"
	"encoding/json"
)

const (
	// maxDepth is the deepest nesting that is indented.
	maxDepth = 64
	// maxGrowth is how many times its size a text may grow to, beside maxSmall bytes.
	maxGrowth, maxSmall = 4, 16 << 10
)

// JSON returns data indented by two spaces. It returns false if data is not JSON, if it is nested more than 64 levels deep,
// and if it would grow to more than four times its size. It allocates nothing in these two cases.
func JSON(data []byte) (string, bool) {
	depth, size := measure(data)
	if depth > maxDepth || size > maxGrowth*len(data)+maxSmall {
		return "", false
	}
	var indented bytes.Buffer
	indented.Grow(size)
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		return "", false
	}
	return indented.String(), true
}

// measure returns how deep data is nested and an upper bound of its size once indented, as if it were JSON.
func measure(data []byte) (deepest, size int) {
	depth, quoted, escaped := 0, false, false
	for _, b := range data {
		size++
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = b == '\\', b != '"'
		case b == '"':
			quoted = true
		case b == '[' || b == '{':
			depth++
			deepest = max(deepest, depth)
			size += 1 + 2*depth
		case b == ']' || b == '}':
			depth = max(0, depth-1)
			size += 1 + 2*depth
		case b == ',':
			size += 1 + 2*depth
		case b == ':':
			size++
		}
	}
	return deepest, size
}
