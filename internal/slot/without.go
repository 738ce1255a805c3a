package slot

import "strings"

// Without removes the tag from a key, with its braces and a colon that is left over: shop:{17}:orders becomes
// shop:orders. Keys that differ only in their tag thus get the same name. A key without a tag does not change.
func Without(key string) string {
	before, rest, open := strings.Cut(key, "{")
	tag, behind, closed := strings.Cut(rest, "}")
	if !open || !closed || tag == "" {
		return key
	}
	if before == "" || strings.HasSuffix(before, ":") {
		behind = strings.TrimPrefix(behind, ":")
	}
	return before + behind
}
