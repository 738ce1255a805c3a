package slot

import "strings"

// Without cuts the tag off a key, with its braces and a colon that is left over: shop:{17}:orders is shop:orders. Keys
// that differ in their tag alone then have one name. A key without a tag is itself.
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
