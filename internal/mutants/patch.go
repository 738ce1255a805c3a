package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
)

// patch copies a test binary and replaces a script that is embedded in it, so that mutants of scripts need no
// compilation.
func patch(original, binary, old, edited string) error {
	image, err := os.ReadFile(original)
	if err != nil {
		return err
	}
	fitted, err := fit(edited, len(old))
	if err != nil {
		return err
	}
	if n := bytes.Count(image, []byte(old)); n != 1 {
		return fmt.Errorf("the script occurs %d times in the test binary", n)
	}
	return os.WriteFile(binary, bytes.Replace(image, []byte(old), []byte(fitted), 1), 0o700) //nolint:gosec // it is run
}

// fit gives a script a length: it appends blanks to a shorter script, and shortens the first comments of a longer
// one.
func fit(script string, length int) (string, error) {
	if len(script) <= length {
		return script + strings.Repeat(" ", length-len(script)), nil
	}
	from := 0
	for spare := len(script) - length; spare > 0; {
		start := strings.Index(script[from:], "--")
		if start < 0 {
			return "", errors.New("no comment is long enough for the edit")
		}
		text := from + start + len("--")
		end := text + strings.IndexByte(script[text:]+"\n", '\n')
		cut := min(spare, end-text)
		script, from, spare = script[:text]+script[text+cut:], text, spare-cut
	}
	return script, nil
}
