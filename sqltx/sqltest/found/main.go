// Command found prints in one line which databases are available for tests. It first installs missing servers if that is allowed.
package main

import (
	"fmt"

	"github.com/luatx/luatx/sqltx/sqltest"
)

func main() { fmt.Println(sqltest.Found()) }
