// Command bench measures luatx beside what else does its work, in one run, and writes docs/performance.md.
package main

import (
	"fmt"
	"os"
)

func main() {
	for _, g := range groups() {
		fmt.Fprintln(os.Stdout, g.Name)
	}
}
