package trigger

import (
	"encoding/json"
	"strings"

	"github.com/luatx/luatx/internal/test/rig"
)

// records holds the output of a JSON log handler.
type records struct{ rig.Lines }

func (r *records) all() (lines []map[string]any) {
	for text := range strings.Lines(r.String()) {
		var line map[string]any
		_ = json.Unmarshal([]byte(text), &line) // each line is a JSON object
		lines = append(lines, line)
	}
	return lines
}

// with returns the lines whose message contains a text.
func (r *records) with(text string) (lines []map[string]any) {
	for _, line := range r.all() {
		if strings.Contains(line["msg"].(string), text) {
			lines = append(lines, line)
		}
	}
	return lines
}
