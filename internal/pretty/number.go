package pretty

import (
	"fmt"
	"strings"
)

// Thousands writes a whole number with commas between its thousands.
func Thousands(n any) string {
	digits, negative := strings.CutPrefix(fmt.Sprint(n), "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if negative {
		return "-" + digits
	}
	return digits
}
