// Command found prints in one line which databases there are to test with, and installs the servers first where that is
// allowed.
package main

import (
	"fmt"

	"github.com/luatx/luatx/sqltx/sqltest"
)

func main() { fmt.Println(sqltest.Found()) }
