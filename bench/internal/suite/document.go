package suite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The name of the document, and of the directory with its pictures.
const (
	document = "measurements.md"
	pictures = "img"
)

// Write replaces the group's section in dir/measurements.md, which lies between markers, and writes its pictures.
func Write(dir, group, section string, plots []Plot) error {
	name := filepath.Join(dir, document)
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	text, err := replace(string(old), group, section)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, pictures), 0o755); err != nil {
		return err
	}
	for _, plot := range plots {
		svg, err := plot.SVG()
		if err != nil {
			return fmt.Errorf("plot %s: %w", plot.Name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, pictures, plot.Name+".svg"), svg, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

// replace replaces the text between the group's markers.
func replace(text, group, section string) (string, error) {
	begin, end := fmt.Sprintf("<!-- bench %s -->\n", group), fmt.Sprintf("<!-- bench %s ends -->\n", group)
	before, rest, ok := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("lines %q and %q not found", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + "\n" + section + "\n" + end + after, nil
}
