package redistest

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	expiryTolerance = 5 // ms
	diffLines       = 20
	diffWidth       = 160
)

// Diff says what b has other than a, line by line, or "" when they are equal. Expiry times may differ by 5 ms.
func Diff(a, b State) string {
	var out strings.Builder
	keys := maps.Clone(a.Keys)
	maps.Copy(keys, b.Keys)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		before, had := a.Keys[key]
		after, has := b.Keys[key]
		switch {
		case !has:
			fmt.Fprintf(&out, "- %q %s: deleted\n", key, before.Type)
		case !had:
			fmt.Fprintf(&out, "+ %q %s:\n%s", key, after.Type, indented("+", after.Value))
		default:
			out.WriteString(diffEntry(key, before, after))
		}
	}
	if out.Len() == 0 && a.Digest != b.Digest && a.Digest != "" && b.Digest != "" {
		fmt.Fprintf(&out, "~ DEBUG DIGEST %s, then %s\n", a.Digest, b.Digest)
	}
	return out.String()
}

func diffEntry(key string, a, b Entry) string {
	var out strings.Builder
	if a.Type != b.Type {
		fmt.Fprintf(&out, "~ %q: type %s, then %s\n", key, a.Type, b.Type)
	}
	if (a.ExpireAt == 0) != (b.ExpireAt == 0) || max(a.ExpireAt-b.ExpireAt, b.ExpireAt-a.ExpireAt) > expiryTolerance {
		fmt.Fprintf(&out, "~ %q %s: expires %s, then %s\n", key, b.Type, expiryText(a.ExpireAt), expiryText(b.ExpireAt))
	}
	if !slices.Equal(a.Value, b.Value) {
		lost, won := without(a.Value, b.Value), without(b.Value, a.Value)
		fmt.Fprintf(&out, "~ %q %s:", key, b.Type)
		if len(lost)+len(won) == 0 {
			out.WriteString(" same lines in another order")
		}
		out.WriteString("\n" + indented("-", lost) + indented("+", won))
	}
	return out.String()
}

func expiryText(ms int64) string {
	if ms == 0 {
		return "never"
	}
	return fmt.Sprintf("at %d (%s)", ms, time.UnixMilli(ms).UTC().Format("15:04:05.000"))
}

// without returns the lines of a that b has not, as often as b has fewer of them.
func without(a, b []string) []string {
	count := map[string]int{}
	for _, line := range b {
		count[line]++
	}
	var out []string
	for _, line := range a {
		if count[line]--; count[line] < 0 {
			out = append(out, line)
		}
	}
	return out
}

func indented(sign string, lines []string) string {
	var out strings.Builder
	for i, line := range lines {
		if i == diffLines {
			fmt.Fprintf(&out, "    %s … %d more\n", sign, len(lines)-i)
			break
		}
		if len(line) > diffWidth {
			line = fmt.Sprintf("%s… (%d characters, crc %08x)", line[:diffWidth], len(line), crc32.ChecksumIEEE([]byte(line)))
		}
		fmt.Fprintf(&out, "    %s %s\n", sign, line)
	}
	return out.String()
}
