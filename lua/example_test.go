package lua_test

import (
	"fmt"
	"strings"

	"github.com/luatx/luatx/lua"
)

// Each script begins with a header that says what it is for, its keys and arguments, its reply and what bounds it.
func ExampleSource() {
	for line := range strings.Lines(lua.Source("commit")) {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "-- "), ": "); ok && !strings.HasPrefix(name, " ") {
			fmt.Println(strings.TrimSpace(name))
		}
		if !strings.HasPrefix(line, "--") {
			break
		}
	}
	// Output:
	// Purpose
	// KEYS
	// ARGV
	// Reply
	// Bound
	// Redis
}
