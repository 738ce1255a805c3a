// Command found prints in one line what there is to test with, and installs a server first where that is allowed.
package main

import (
	"fmt"

	"github.com/luatx/luatx/internal/test/redistest"
)

func main() { fmt.Println(redistest.Found()) }
