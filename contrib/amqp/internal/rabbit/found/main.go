// Command found prints in one line whether RabbitMQ is available for tests. It first installs it if that is allowed.
package main

import (
	"fmt"

	"github.com/luatx/luatx/contrib/amqp/internal/rabbit"
)

func main() { fmt.Println(rabbit.Found()) }
